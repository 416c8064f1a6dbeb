{{- define "cs.name" -}}
{{- if contains "cluster-serving" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-cluster-serving{{ end -}}
{{- end }}

{{/* The job with its defaults, as JSON: dict "root" $ "job" . */}}
{{- define "cs.job" -}}
{{- $defaults := dict "taskManagers" 1 "slots" 1 "memory" 4096 "cpu" 1 "jobManager" dict "config" dict "env" list "flinkProperties" dict "nodeSelector" dict "tolerations" list "model" dict "autoscaling" dict -}}
{{- $job := mergeOverwrite $defaults (deepCopy .job) -}}
{{- $_ := set $job "autoscaling" (mergeOverwrite (dict "enabled" false "maxTaskManagers" 4 "queueLength" 100 "cooldownSeconds" 300 "redisAddress" "" "redisDatabase" 0 "authentication" "") $job.autoscaling) -}}
{{- $most := ternary $job.autoscaling.maxTaskManagers $job.taskManagers $job.autoscaling.enabled -}}
{{- if $job.autoscaling.enabled -}}
{{- $_ := set $job "flinkProperties" (mergeOverwrite (dict "jobmanager.scheduler" "adaptive") $job.flinkProperties) -}}
{{- end -}}
{{- $_ := set $job "jobManager" (mergeOverwrite (dict "memory" 1280 "cpu" 0.25) $job.jobManager) -}}
{{- $_ := set $job "fullname" (printf "%s-%s" (include "cs.name" .root) .job.name) -}}
{{- $_ := set $job "config" (mergeOverwrite (dict "jobName" .job.name "modelParallelism" (mul $most $job.slots)) $job.config) -}}
{{- toJson $job -}}
{{- end }}

{{- define "cs.selector" -}}
app.kubernetes.io/name: cluster-serving
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .job }}
cluster-serving/job: {{ . }}
{{- end }}
{{- end }}

{{- define "cs.labels" -}}
{{ include "cs.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* Of all pods. Without service links: a Service would set variables such as CLUSTER_SERVING_HTTP_PORT. */}}
{{- define "cs.pod" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cs.container" -}}
imagePullPolicy: {{ .Values.images.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The variable with the URL of Redis. */}}
{{- define "cs.redisUrl" -}}
- name: CLUSTER_SERVING_REDIS_URL
{{- if .Values.redis.enabled }}
  value: redis://{{ include "cs.name" . }}-redis:6379/0
{{- else if .Values.redis.secret.name }}
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.secret.name }}, key: {{ .Values.redis.secret.key }}}}
{{- else }}
  value: {{ required "redis.enabled is false: set redis.url, or redis.secret.name for a URL with a password" .Values.redis.url }}
{{- end }}
{{- end }}

{{/* Init container and volume of the model: a job with its defaults. */}}
{{- define "cs.modelInit" -}}
{{- with .job.model.init }}
initContainers:
- name: model
  image: {{ .image }}
  {{- include "cs.container" $.root | nindent 2 }}
  command: {{ toJson .command }}
  volumeMounts:
  - {name: model, mountPath: {{ $.job.model.mountPath }}}
{{- end }}
{{- end }}

{{- define "cs.modelVolume" -}}
{{- if .model.init }}
- {name: model, emptyDir: {}}
{{- else if .model.volume }}
- name: model
  {{- toYaml .model.volume | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cs.modelMount" -}}
{{- if or .model.init .model.volume }}
- {name: model, mountPath: {{ .model.mountPath }}, readOnly: true}
{{- end }}
{{- end }}
