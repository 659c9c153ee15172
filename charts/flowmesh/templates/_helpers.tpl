{{/* Labels of every object; part is the component. Call with (dict "root" $ "part" "operator"). */}}
{{- define "flowmesh.labels" -}}
{{ include "flowmesh.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels of selectors, which are immutable. */}}
{{- define "flowmesh.selector" -}}
app.kubernetes.io/name: flowmesh
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* An image of the project. Call with (dict "root" $ "repository" "..." "tag" "..."). */}}
{{- define "flowmesh.image" -}}
{{- $image := .root.Values.image -}}
{{- if $image.registry -}}{{ trimSuffix "/" $image.registry }}/{{- end -}}
{{ .repository }}:{{ .tag | default $image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "flowmesh.operatorImage" -}}
{{ include "flowmesh.image" (dict "root" . "repository" .Values.operator.image "tag" "") }}
{{- end -}}

{{- define "flowmesh.routerImage" -}}
{{ include "flowmesh.image" (dict "root" . "repository" (.Values.router.image | default .Values.operator.image) "tag" "") }}
{{- end -}}

{{- define "flowmesh.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Security contexts of a pod and of a container for the restricted Pod Security Standard. */}}
{{- define "flowmesh.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "flowmesh.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "flowmesh.tlsSecret" -}}
{{ .Values.gateway.tls.existingSecret | default "flowmesh-gateway-tls" }}
{{- end -}}

{{- define "flowmesh.routerTlsSecret" -}}
{{ .Values.router.tls.existingSecret | default "flowmesh-router-tls" }}
{{- end -}}

{{- define "flowmesh.masterKeySecret" -}}
{{ .Values.masterKey.existingSecret | default "flowmesh-master-key" }}
{{- end -}}

{{/* The store's address, as open_store reads it. */}}
{{- define "flowmesh.store" -}}
{{- if eq .Values.store.type "versitygw" -}}
s3://flowmesh?endpoint=http://flowmesh-store.{{ .Release.Namespace }}.svc:7070&region=us-east-1
{{- else if eq .Values.store.type "s3" -}}
{{ .Values.store.s3.url }}
{{- if .Values.store.s3.caSecret -}}
{{ ternary "&" "?" (contains "?" .Values.store.s3.url) }}ca=/etc/flowmesh/store-ca/ca.crt
{{- end -}}
{{- else -}}
file:///var/lib/flowmesh-store
{{- end -}}
{{- end -}}

{{/* Secrets with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or nothing. */}}
{{- define "flowmesh.operatorStoreSecret" -}}
{{- if eq .Values.store.type "versitygw" -}}flowmesh-store-operator
{{- else if eq .Values.store.type "s3" -}}{{ .Values.store.s3.operatorSecret }}
{{- end -}}
{{- end -}}

{{/*
Which account the S3 server reads at its start: an upgrade with another one replaces its pod. The
Secret is often made after this is rendered (by the Job of operator/secrets_job.yaml, which writes a
digest of what it made), so an account that the Job made counts as one and the same until somebody
changes it. Where Helm does not apply the chart itself, this never changes.
*/}}
{{- define "flowmesh.storeAccount" -}}
{{- $secret := lookup "v1" "Secret" .Release.Namespace "flowmesh-store-operator" | default dict -}}
{{- $lines := "" -}}
{{- range $key, $value := $secret.data | default dict }}{{ $lines = printf "%s%s=%s\n" $lines $key $value }}{{ end -}}
{{- $digest := sha256sum $lines -}}
{{- if $secret }}{{ if eq $digest (dig "metadata" "annotations" "flowmesh.dev/generated" "" $secret) }}generated{{ else }}{{ trunc 16 $digest }}{{ end }}
{{- else if .Release.IsInstall }}generated
{{- else }}generated-{{ .Release.Revision }}
{{- end -}}
{{- end -}}

{{/* Mounts and volumes of the Secrets for the store: its account, which is followed, and its CA. */}}
{{- define "flowmesh.storeMounts" -}}
{{- if include "flowmesh.operatorStoreSecret" . }}
- {name: store-account, mountPath: /etc/flowmesh/store-account, readOnly: true}
{{- end }}
{{- if and (eq .Values.store.type "s3") .Values.store.s3.caSecret }}
- {name: store-ca, mountPath: /etc/flowmesh/store-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "flowmesh.storeVolumes" -}}
{{- with include "flowmesh.operatorStoreSecret" . }}
- name: store-account
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if and (eq .Values.store.type "s3") .Values.store.s3.caSecret }}
- name: store-ca
  secret: {secretName: {{ .Values.store.s3.caSecret }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- end -}}

{{/* The init container that creates the bucket of the chart's own S3 server. */}}
{{- define "flowmesh.bucketContainer" -}}
- name: bucket
  image: {{ include "flowmesh.operatorImage" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [python, -m, flowmesh_store.s3.prepare]
  args: [{{ include "flowmesh.store" . | quote }}, --within, "300"]
  envFrom:
    - secretRef: {name: {{ include "flowmesh.operatorStoreSecret" . }}}
  securityContext: {{- include "flowmesh.containerSecurity" . | nindent 4 }}
  resources:
    requests: {cpu: 100m, memory: 128Mi}
    limits: {memory: 256Mi}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{/* Egress to the bucket: the chart's own server, or networkPolicy.storeEgress. */}}
{{- define "flowmesh.storeRule" -}}
{{- if eq .Values.store.type "versitygw" -}}
to:
  - podSelector:
      matchLabels: {{- include "flowmesh.selector" (dict "part" "store") | nindent 8 }}
ports:
  - {port: 7070}
{{- else -}}
to:
  {{- range .Values.networkPolicy.storeEgress.cidrs }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
ports:
  {{- range .Values.networkPolicy.storeEgress.ports }}
  - {port: {{ . }}}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* Egress to DNS: the cluster's own and networkPolicy.dns. */}}
{{- define "flowmesh.dnsRule" -}}
to:
  - namespaceSelector:
      matchLabels: {kubernetes.io/metadata.name: kube-system}
    podSelector:
      matchLabels: {k8s-app: kube-dns}
  {{- range .Values.networkPolicy.dns }}
  - ipBlock: {cidr: {{ . | quote }}}
  {{- end }}
ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
{{- end -}}

{{- /* When the leader collects the store, and what stays. */ -}}
{{- define "flowmesh.collectionEnvironment" -}}
{{- with .Values.collection -}}
- {name: FLOWMESH_COLLECT_EVERY_S, value: {{ .everySeconds | int64 | quote }}}
- {name: FLOWMESH_COLLECT_GRACE_S, value: {{ .graceSeconds | int64 | quote }}}
- {name: FLOWMESH_STORE_MAX, value: {{ .storeMax | quote }}}
- {name: FLOWMESH_RESULT_DAYS, value: {{ .resultDays | int64 | quote }}}
- {name: FLOWMESH_RUN_DAYS, value: {{ .runDays | int64 | quote }}}
{{- end -}}
{{- end -}}

{{- /* An account whose token, in the Secret of the same name, may read the gateway's metrics. */ -}}
{{- define "flowmesh.metricsReader" -}}
{{- $labels := include "flowmesh.labels" (dict "root" .root "part" .part) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels: {{- $labels | nindent 4 }}
rules:
  - nonResourceURLs: [/metrics]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels: {{- $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}
---
# Kubernetes adds the token to this Secret.
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
  annotations:
    kubernetes.io/service-account.name: {{ .name }}
type: kubernetes.io/service-account-token
{{- end -}}
