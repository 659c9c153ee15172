// External-metrics answers the External metrics API from Prometheus, by the rules that the chart ships
// for prometheus-adapter: what of them a HorizontalPodAutoscaler of a pool needs.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/metrics/pkg/apis/external_metrics"
	basecmd "sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
	"sigs.k8s.io/yaml"
)

const answersWithin = 10 * time.Second

type rule struct {
	Name struct {
		As string `json:"as"`
	} `json:"name"`
	MetricsQuery string `json:"metricsQuery"`
	Resources    struct {
		Overrides map[string]struct {
			Resource string `json:"resource"`
		} `json:"overrides"`
	} `json:"resources"`
}

// query fills the rule's templates: the series, and a matcher for the namespace and each label asked for.
func (r rule) query(namespace string, selector labels.Selector) string {
	var matchers []string
	for label, override := range r.Resources.Overrides {
		if override.Resource == "namespace" {
			matchers = append(matchers, fmt.Sprintf("%s=%q", label, namespace))
		}
	}
	requirements, _ := selector.Requirements()
	for _, asked := range requirements {
		any := strings.Join(asked.Values().List(), "|")
		matchers = append(matchers, fmt.Sprintf("%s=~%q", asked.Key(), any))
	}
	filled := strings.ReplaceAll(r.MetricsQuery, "<<.Series>>", r.Name.As)
	return strings.ReplaceAll(filled, "<<.LabelMatchers>>", strings.Join(matchers, ","))
}

type fromPrometheus struct {
	address string
	rules   map[string]rule
}

type answer struct {
	Error string `json:"error"`
	Data  struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		} `json:"result"`
	} `json:"data"`
}

// GetExternalMetric asks Prometheus for the metric's series as they are now.
func (p *fromPrometheus) GetExternalMetric(
	ctx context.Context, namespace string, selector labels.Selector, info provider.ExternalMetricInfo,
) (*external_metrics.ExternalMetricValueList, error) {
	known, found := p.rules[info.Metric]
	if !found {
		return nil, provider.NewMetricNotFoundError(external_metrics.Resource("externalmetrics"), info.Metric)
	}
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	place := p.address + "/api/v1/query?query=" + url.QueryEscape(known.query(namespace, selector))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var said answer
	if err := json.NewDecoder(response.Body).Decode(&said); err != nil {
		return nil, fmt.Errorf("prometheus said no JSON: %w", err)
	}
	if said.Error != "" {
		return nil, fmt.Errorf("prometheus: %s", said.Error)
	}
	values := &external_metrics.ExternalMetricValueList{}
	for _, series := range said.Data.Result {
		value, err := resource.ParseQuantity(fmt.Sprint(series.Value[1]))
		if err != nil {
			return nil, fmt.Errorf("prometheus: %v is no number", series.Value[1])
		}
		values.Items = append(values.Items, external_metrics.ExternalMetricValue{
			MetricName: info.Metric, MetricLabels: series.Metric, Timestamp: metav1.Now(), Value: value,
		})
	}
	return values, nil
}

// ListAllExternalMetrics names what the rules know.
func (p *fromPrometheus) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	var all []provider.ExternalMetricInfo
	for name := range p.rules {
		all = append(all, provider.ExternalMetricInfo{Metric: name})
	}
	return all
}

func read(file string) (map[string]rule, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var document struct {
		ExternalRules []rule `json:"externalRules"`
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rules := map[string]rule{}
	for _, one := range document.ExternalRules {
		rules[one.Name.As] = one
	}
	return rules, nil
}

func main() {
	adapter := &basecmd.AdapterBase{Name: "external-metrics"}
	address := adapter.Flags().String("prometheus-url", "", "where Prometheus answers")
	file := adapter.Flags().String("config", "", "rules, as prometheus-adapter reads them")
	adapter.Flags().AddGoFlagSet(flag.CommandLine)
	if err := adapter.Flags().Parse(os.Args[1:]); err != nil {
		klog.Fatal(err)
	}
	rules, err := read(*file)
	if err != nil {
		klog.Fatal(err)
	}
	adapter.WithExternalMetrics(&fromPrometheus{strings.TrimRight(*address, "/"), rules})
	if err := adapter.Run(genericapiserver.SetupSignalContext()); err != nil {
		klog.Fatal(err)
	}
}
