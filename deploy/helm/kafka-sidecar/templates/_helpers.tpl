{{/* Names and labels. */}}
{{- define "sidecar.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "sidecar.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "sidecar.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "sidecar.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "sidecar.selector" -}}
app.kubernetes.io/name: {{ include "sidecar.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "sidecar.labels" -}}
{{ include "sidecar.selector" . }}
app.kubernetes.io/part-of: kafka-sidecar
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "sidecar.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end }}
{{- end }}
{{- end }}

{{/* The maximum number of nodes: each gets its own Services. */}}
{{- define "sidecar.most" -}}
{{- if .Values.autoscaling.enabled }}{{ max .Values.nodes .Values.autoscaling.maxNodes }}{{ else }}{{ .Values.nodes }}{{ end }}
{{- end }}

{{/* A listener's name in the form of Kubernetes, and in the form of settings. */}}
{{- define "sidecar.port" -}}{{ .name | lower | replace "_" "-" }}{{- end }}
{{- define "sidecar.key" -}}{{ .name | lower | replace "-" "_" }}{{- end }}

{{/* The advertised address of a listener. Kubernetes replaces $(…) for each pod. */}}
{{- define "sidecar.advertised" -}}
{{- $listener := .listener }}
{{- with $listener.exposure }}
{{- if eq .type "cluster" }}$(POD_NAME).{{ include "sidecar.fullname" $.root }}-nodes.$(POD_NAMESPACE).svc:{{ $listener.port }}
{{- else if eq .type "nodePort" }}{{ default "$(HOST_IP)" .host | replace "{node}" "$(SIDECAR_NODE_ID)" }}:{{ .nodePort }}
{{- else if eq .type "ingress" }}{{ .host | replace "{node}" "$(SIDECAR_NODE_ID)" }}:{{ default 443 .port }}
{{- else }}{{ .host | replace "{node}" "$(SIDECAR_NODE_ID)" }}:{{ default $listener.port .port }}
{{- end }}
{{- end }}
{{- end }}

{{/* A value in TOML. Helm passes numbers of a values file as floats; strings are escaped as in JSON. */}}
{{- define "sidecar.toml" -}}
{{- if or (kindIs "float64" .) (kindIs "int64" .) (kindIs "int" .) }}{{ int64 . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* Every Secret that is mounted: name of the volume, Secret, directory, and file by key. */}}
{{- define "sidecar.mounts" -}}
{{- $mounts := list }}
{{- with .Values.kafka }}
{{- with .ca }}{{ if .secretName }}
{{- $mounts = append $mounts (dict "name" "kafka-ca" "secret" .secretName "path" "/etc/sidecar-kafka/ca" "items" (dict .key "ca.crt")) }}
{{- end }}{{ end }}
{{- with .certificate }}{{ if .secretName }}
{{- $mounts = append $mounts (dict "name" "kafka-certificate" "secret" .secretName "path" "/etc/sidecar-kafka/certificate" "items" (dict .certificate "tls.crt" .key "tls.key")) }}
{{- end }}{{ end }}
{{- with .sasl.password }}{{ if .secretName }}
{{- $mounts = append $mounts (dict "name" "kafka-password" "secret" .secretName "path" "/etc/sidecar-kafka/password" "items" (dict .key "password")) }}
{{- end }}{{ end }}
{{- end }}
{{- with .Values.redis.ca }}{{ if .secretName }}
{{- $mounts = append $mounts (dict "name" "redis-ca" "secret" .secretName "path" "/etc/sidecar-redis" "items" (dict .key "ca.crt")) }}
{{- end }}{{ end }}
{{- with .Values.admin.certificate }}{{ if .secretName }}
{{- $mounts = append $mounts (dict "name" "admin" "secret" .secretName "path" "/etc/sidecar-admin" "items" (dict .certificate "tls.crt" .key "tls.key" .ca "ca.crt")) }}
{{- end }}{{ end }}
{{- range .Values.listeners }}
{{- $name := include "sidecar.port" . }}
{{- with .certificate }}
{{- $items := dict (default "tls.crt" .certificate) "tls.crt" (default "tls.key" .key) "tls.key" }}
{{- $mounts = append $mounts (dict "name" (printf "listener-%s" $name) "secret" .secretName "path" (printf "/etc/sidecar-listeners/%s" $name) "items" $items) }}
{{- end }}
{{- with .clientCa }}
{{- $mounts = append $mounts (dict "name" (printf "clients-%s" $name) "secret" .secretName "path" (printf "/etc/sidecar-clients/%s" $name) "items" (dict (default "ca.crt" .key) "ca.crt")) }}
{{- end }}
{{- with .users }}
{{- $mounts = append $mounts (dict "name" (printf "users-%s" $name) "secret" .secretName "path" (printf "/etc/sidecar-users/%s" $name) "items" (dict (default "users.toml" .key) "users.toml")) }}
{{- end }}
{{- end }}
{{- toYaml $mounts }}
{{- end }}
