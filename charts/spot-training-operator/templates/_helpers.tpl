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
Not empty when the release has egress policies. A release that is upgraded with its former values has no values for them.
*/}}
{{- define "spot-training-operator.closesEgress" -}}
{{- $egress := .Values.networkPolicy.egress | default dict -}}
{{- if $egress.enabled -}}
{{- if not ($egress.apiServer).cidrs -}}
{{- fail "networkPolicy.egress.apiServer.cidrs: is empty, and without the API server nothing works: give its addresses, such as 10.96.0.1/32, that of its Service and those behind it: kubectl get -n default service/kubernetes endpointslices/kubernetes" -}}
{{- end -}}
{{- if and .Values.namespaces (or ($egress.cloud).enabled ($egress.cloud).metadataServer) -}}
{{- fail "networkPolicy.egress.cloud: a release with namespaces serves no SpotInstanceVMs and asks no provider: leave out one of the two" -}}
{{- end -}}
true
{{- end -}}
{{- end }}

{{/*
End of the names of objects without a namespace that each release with namespaces has for itself.
*/}}
{{- define "spot-training-operator.suffix" -}}
{{- if .Values.namespaces }}-{{ .Release.Namespace }}{{ end -}}
{{- end }}
