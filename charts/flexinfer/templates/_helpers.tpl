{{- define "flexinfer.labels" -}}
{{- /* . is (dict "root" $ "part" <component>) */ -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: flexinfer
{{ include "flexinfer.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "flexinfer.selector" -}}
app.kubernetes.io/name: flexinfer
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "flexinfer.podLabels" -}}
{{- /* Without versions: a new chart that changes nothing of a pod does not restart it. */ -}}
app.kubernetes.io/part-of: flexinfer
{{ include "flexinfer.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "flexinfer.image" -}}
{{- /* . is (dict "root" $ "image" <repository and tag of the part>) */ -}}
{{- $all := .root.Values.image -}}
{{- $repository := .image.repository | default $all.repository -}}
{{- $tag := .image.tag | default $all.tag | default .root.Chart.AppVersion -}}
{{- with $all.registry }}{{ . }}/{{ end }}{{ $repository }}:{{ $tag }}
{{- end }}

{{- define "flexinfer.schedulerNamespace" -}}
{{- .Values.scheduler.namespace | default .Release.Namespace -}}
{{- end }}

{{- define "flexinfer.kubeSchedulerTag" -}}
{{- /* Distributions add their own suffix to the version, for example v1.34.1+k3s1; the image has none. */ -}}
{{- .Values.scheduler.kubeScheduler.tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) -}}
{{- end }}

{{- define "flexinfer.proxyUrl" -}}
http://{{ .Values.fullname }}-proxy.{{ .Release.Namespace }}.svc:{{ .Values.proxy.service.port }}
{{- end }}

{{- define "flexinfer.natsUrl" -}}
{{- if .Values.nats.enabled -}}
nats://{{ .Values.fullname }}-nats.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{ .Values.externalNats.url }}
{{- end -}}
{{- end }}

{{- define "flexinfer.natsAuth" -}}
{{- if .Values.nats.enabled }}{{ if .Values.nats.auth.enabled }}yes{{ end }}{{ else if .Values.externalNats.credentialsSecret }}yes{{ end -}}
{{- end }}

{{- define "flexinfer.natsCa" -}}
{{- if .Values.nats.enabled }}{{ if .Values.nats.tls.enabled }}yes{{ end }}{{ else if .Values.externalNats.caSecret }}yes{{ end -}}
{{- end }}

{{- define "flexinfer.calloutSecret" -}}
{{- /* The Secret with the key of the bus's auth callout; empty: there is none. */ -}}
{{- if not .Values.nats.enabled }}{{ .Values.externalNats.calloutSecret }}
{{- else if and .Values.nats.auth.enabled .Values.nats.auth.callout.enabled }}{{ .Values.fullname }}-nats-callout{{ end -}}
{{- end }}

{{- define "flexinfer.busAudience" -}}
flexinfer-bus
{{- end }}

{{- define "flexinfer.benchNatsUrl" -}}
{{- /* A bus that asks for no credential lets Jobs in as well. */ -}}
{{- if ne .Values.benchmark.natsUrl "auto" }}{{ .Values.benchmark.natsUrl }}
{{- else if or (include "flexinfer.calloutSecret" .) (not (include "flexinfer.natsAuth" .)) }}{{ include "flexinfer.natsUrl" . }}
{{- else }}off{{ end -}}
{{- end }}

{{- define "flexinfer.busEnv" -}}
- name: NATS_URL
  value: {{ include "flexinfer.natsUrl" .root | quote }}
{{- if include "flexinfer.natsAuth" .root }}
- name: FLEXINFER_NATS_CREDENTIALS
  value: /etc/flexinfer/nats/credentials
{{- end }}
{{- if include "flexinfer.natsCa" .root }}
- name: FLEXINFER_NATS_CA
  value: /etc/flexinfer/nats/ca.crt
{{- end }}
- name: FLEXINFER_CLUSTER
  value: {{ .root.Values.clusterName | quote }}
{{- include "flexinfer.logEnv" . }}
{{- end }}

{{- define "flexinfer.logEnv" }}
- name: FLEXINFER_LOG_LEVEL
  value: {{ .root.Values.logLevel }}
- name: FLEXINFER_LOG_FORMAT
  value: json
{{- end }}

{{- define "flexinfer.mounts" -}}
- name: tmp
  mountPath: /tmp
{{- if or (include "flexinfer.natsAuth" .root) (include "flexinfer.natsCa" .root) }}
- name: nats
  mountPath: /etc/flexinfer/nats
  readOnly: true
{{- end }}
{{- end }}

{{- define "flexinfer.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: 256Mi
{{- $auth := include "flexinfer.natsAuth" .root }}
{{- $ca := include "flexinfer.natsCa" .root }}
{{- if or $auth $ca }}
- name: nats
  projected:
    defaultMode: 0440
    sources:
      {{- if and (eq .part "agent") (include "flexinfer.calloutSecret" .root) }}
      # Of this pod alone, and for the bus alone; the kubelet renews it, and each connection reads it again.
      - serviceAccountToken: {audience: {{ include "flexinfer.busAudience" .root }}, expirationSeconds: 3600, path: credentials}
      {{- else if $auth }}
      - secret:
          {{- if .root.Values.nats.enabled }}
          name: {{ .root.Values.fullname }}-nats-{{ .part }}
          items:
            - {key: credentials, path: credentials}
          {{- else }}
          name: {{ .root.Values.externalNats.credentialsSecret }}
          items:
            - {key: {{ .part }}, path: credentials}
          {{- end }}
      {{- end }}
      {{- if $ca }}
      {{- if .root.Values.nats.enabled }}
      {{- with .root.Values.nats.tls.existingSecret }}
      - secret:
          name: {{ . }}
          items:
            - {key: ca.crt, path: ca.crt}
      {{- else }}
      - configMap:
          name: {{ .root.Values.fullname }}-nats-ca
      {{- end }}
      {{- else }}
      - secret:
          name: {{ .root.Values.externalNats.caSecret }}
          items:
            - {key: ca.crt, path: ca.crt}
      {{- end }}
      {{- end }}
{{- end }}
{{- end }}

{{- define "flexinfer.probes" -}}
{{- /* . is (dict "port" <name or number>) and, with TLS, "scheme" */ -}}
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}{{ with .scheme }}, scheme: {{ . }}{{ end }}}
  periodSeconds: {{ .every | default 2 }}
  timeoutSeconds: 5
  failureThreshold: 3
{{- end }}

{{- define "flexinfer.placement" -}}
{{- /* . is (dict "root" $ "values" <values of the part> "class" agent or control-plane, "spread" component or nothing) */ -}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .values.affinity }}
affinity: {{- toYaml .values.affinity | nindent 2 }}
{{- else if .spread }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "flexinfer.selector" (dict "root" .root "part" .spread) | nindent 14 }}
{{- end }}
{{- if .values.priorityClassName }}
priorityClassName: {{ .values.priorityClassName }}
{{- else if .root.Values.priorityClasses.create }}
priorityClassName: {{ .root.Values.fullname }}-{{ .class }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "flexinfer.annotations" -}}
{{- /* . is (dict "root" $ "values" <values of the part> "container" <default container>) */ -}}
kubectl.kubernetes.io/default-container: {{ .container }}
{{- with .values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "flexinfer.seconds" -}}
{{- /* Whole seconds of a duration such as 30s, 5m or 1m30s. */ -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[smh]" (toString .) -1 -}}
{{- $number := regexFind "[0-9]+" . | int -}}
{{- $unit := get (dict "s" 1 "m" 60 "h" 3600) (regexFind "[smh]" .) -}}
{{- $sum = add $sum (mul $number $unit) -}}
{{- end -}}
{{- $sum -}}
{{- end }}
