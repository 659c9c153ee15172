{{/* The operator's settings for the pods of pools. */}}
{{- define "flowmesh.workerEnvironment" -}}
- {name: FLOWMESH_WORKER_GATEWAY, value: "wss://flowmesh-gateway.{{ .Release.Namespace }}.svc:{{ .Values.gateway.port }}"}
- {name: FLOWMESH_WORKER_CA_SECRET, value: {{ include "flowmesh.tlsSecret" . }}}
- {name: FLOWMESH_WORKER_STORE, value: {{ include "flowmesh.store" . | quote }}}
{{- if ne .Values.store.type "volume" }}
- {name: FLOWMESH_WORKER_BLOB_SERVICE, value: "https://flowmesh-blobs.{{ .Release.Namespace }}.svc:{{ .Values.blobs.port }}"}
{{- end }}
{{- if and (eq .Values.store.type "s3") .Values.store.s3.caSecret }}
- {name: FLOWMESH_WORKER_STORE_CA_SECRET, value: {{ .Values.store.s3.caSecret }}}
{{- end }}
{{- if eq .Values.store.type "s3" }}
- {name: FLOWMESH_WORKER_STORE_CIDRS, value: {{ join "," .Values.networkPolicy.storeEgress.cidrs | quote }}}
{{- end }}
{{- with .Values.networkPolicy.dns }}
- {name: FLOWMESH_WORKER_DNS_CIDRS, value: {{ join "," . | quote }}}
{{- end }}
{{- with concat .Values.clusterRanges.pods .Values.clusterRanges.services .Values.clusterRanges.nodes }}
- {name: FLOWMESH_WORKER_IMPORT_REFUSE, value: {{ join "," . | quote }}}
{{- end }}
{{- if .Values.router.enabled }}
- {name: FLOWMESH_ROUTER_HUBS, value: "tls:flowmesh-router-hubs.{{ .Release.Namespace }}.svc:{{ .Values.router.hubsPort }}"}
- {name: FLOWMESH_ROUTER_CA, value: /etc/flowmesh/router-ca/ca.crt}
- {name: FLOWMESH_ROUTER_URL, value: "https://flowmesh-router.{{ .Release.Namespace }}.svc:{{ .Values.router.port }}/v1"}
{{- end }}
{{- if .Values.keda.enabled }}
- {name: FLOWMESH_KEDA_METRICS_URL, value: "https://flowmesh-gateway.{{ .Release.Namespace }}.svc:{{ .Values.gateway.port }}/metrics"}
- {name: FLOWMESH_KEDA_SECRET, value: flowmesh-keda}
- {name: FLOWMESH_KEDA_PAIR_SECRET, value: flowmesh-keda-pair}
{{- end }}
{{- if eq .Values.store.type "volume" }}
- {name: FLOWMESH_WORKER_STORE_CLAIM, value: {{ .Values.store.volume.existingClaim }}}
{{- end }}
{{- end -}}
