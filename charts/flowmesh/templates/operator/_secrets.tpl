{{/* Arguments of the Job for the Secrets that it creates if missing; empty if all are given. */}}
{{- define "flowmesh.secretsWanted" -}}
{{- $wanted := list -}}
{{- if not .Values.gateway.tls.existingSecret -}}
{{- $service := printf "flowmesh-gateway.%s" .Release.Namespace -}}
{{- range concat (list (printf "%s.svc" $service) $service "flowmesh-gateway" (printf "%s.svc.cluster.local" $service) "localhost" "flowmesh-blobs" (printf "flowmesh-blobs.%s" .Release.Namespace) (printf "flowmesh-blobs.%s.svc" .Release.Namespace) (printf "flowmesh-blobs.%s.svc.cluster.local" .Release.Namespace)) .Values.gateway.tls.hosts -}}
{{- $wanted = concat $wanted (list "--host" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.router.enabled (not .Values.router.tls.existingSecret) -}}
{{- $namespace := .Release.Namespace -}}
{{- range $service := list "flowmesh-router" "flowmesh-router-hubs" -}}
{{- range list "" (printf ".%s" $namespace) (printf ".%s.svc" $namespace) (printf ".%s.svc.cluster.local" $namespace) -}}
{{- $wanted = concat $wanted (list "--router-host" (printf "%s%s" $service .)) -}}
{{- end -}}
{{- end -}}
{{- range concat (list "localhost") .Values.router.tls.hosts -}}
{{- $wanted = concat $wanted (list "--router-host" .) -}}
{{- end -}}
{{- end -}}
{{- if $wanted -}}
{{- $wanted = concat $wanted (list "--days" (toString (int .Values.gateway.tls.days))) -}}
{{- end -}}
{{- if not .Values.masterKey.existingSecret -}}
{{- $wanted = append $wanted "--master-key" -}}
{{- if .Values.masterKey.loseResults -}}{{- $wanted = append $wanted "--lose-results" -}}{{- end -}}
{{- end -}}
{{- if eq .Values.store.type "versitygw" -}}{{- $wanted = append $wanted "--store" -}}{{- end -}}
{{- if .Values.keda.enabled -}}{{- $wanted = append $wanted "--keda" -}}{{- end -}}
{{- if $wanted -}}
{{- concat (list "--namespace" .Release.Namespace) $wanted | toYaml -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{/* The spec of that Job, whose name has a digest of it. */}}
{{- define "flowmesh.secretsJob" -}}
backoffLimit: 3
activeDeadlineSeconds: 600
ttlSecondsAfterFinished: 600
template:
  metadata:
    labels: {{- include "flowmesh.labels" (dict "root" . "part" "secrets") | nindent 6 }}
  spec:
    serviceAccountName: flowmesh-secrets
    restartPolicy: Never
    enableServiceLinks: false
    {{- include "flowmesh.pullSecrets" . | nindent 4 }}
    securityContext: {{- include "flowmesh.podSecurity" . | nindent 6 }}
    {{- with .Values.operator.nodeSelector }}
    nodeSelector: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .Values.operator.tolerations }}
    tolerations: {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: create
        image: {{ include "flowmesh.operatorImage" . }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        command: [python, -m, flowmesh_operator.bootstrap]
        args: {{- include "flowmesh.secretsWanted" . | nindent 10 }}
        securityContext: {{- include "flowmesh.containerSecurity" . | nindent 10 }}
        resources:
          requests: {cpu: 100m, memory: 128Mi}
          limits: {memory: 512Mi}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
    volumes:
      - {name: tmp, emptyDir: {}}
{{- end -}}
