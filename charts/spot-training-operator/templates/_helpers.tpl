{{/*
Labels of every object. app.kubernetes.io/name is part of the manager's selector, so it does not follow the release.
*/}}
{{- define "spot-training-operator.labels" -}}
app.kubernetes.io/name: spot-training-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Name of an image. Called with a dict of image, one of the values, and chart.
*/}}
{{- define "spot-training-operator.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default (printf "v%s" .chart.AppVersion) }}
{{- end -}}
{{- end }}

{{/*
Not empty when the admission policy is to be installed.
*/}}
{{- define "spot-training-operator.admissionPolicy" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- $wanted := or (eq .Values.admissionPolicy.install "always") (and (eq .Values.admissionPolicy.install "auto") $served) -}}
{{- if and $wanted (not .Values.namespaces) -}}
true
{{- end -}}
{{- end }}

{{/*
Not empty when the manager makes the certificate of the job service.
*/}}
{{- define "spot-training-operator.makesJobServiceCertificate" -}}
{{- if and .Values.jobService.enabled (not .Values.jobService.plainHTTP) (not .Values.jobService.tlsSecret) -}}
true
{{- end -}}
{{- end }}

{{/*
End of the names of objects without a namespace that each release with namespaces has for itself.
*/}}
{{- define "spot-training-operator.suffix" -}}
{{- if .Values.namespaces }}-{{ .Release.Namespace }}{{ end -}}
{{- end }}
