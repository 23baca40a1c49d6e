{{- define "type" -}}
{{- $type := .type }}
{{ if $type.GVK }}## {{ else }}### {{ end }}{{ $type.Name }}
{{ if .path }}
`{{ .path }}`
{{ end }}
{{ range splitList "\n\n" $type.Doc }}{{ template "text" . }}

{{ end }}
{{- with index $type.Markers "kubebuilder:resource" }}{{ with first . -}}
{{ if eq .Scope "Cluster" }}Belongs to the whole cluster.{{ else }}Belongs to a namespace.{{ end }}
{{- if .ShortName }} kubectl also knows it as {{ range $i, $name := .ShortName }}{{ if $i }}, {{ end }}`{{ $name }}`{{ end }}.{{ end }}

{{ end }}{{ end }}
{{- if $type.Members -}}
| field | meaning | default | allowed |
|---|---|---|---|
{{ with $type.GVK -}}
| `apiVersion` string, **required** | | | `{{ .GroupVersion }}` |
| `kind` string, **required** | | | `{{ .Kind }}` |
{{ end }}
{{- range $type.Members }}{{ if not (has .Name (list "apiVersion" "kind" "metadata")) -}}
| `{{ .Name }}` {{ markdownRenderType .Type }}{{ if has "Required: {}" .Validation }}, **required**{{ end }} | {{ template "text" .Doc }} |
{{- if and .Default (ne .Default "{  }") }} `{{ .Default }}`{{ end }} | {{ template "limits" . }}{{ template "fieldRules" . }} |
{{ end }}{{ end }}
{{- template "rules" $type }}
{{- else if $type.EnumValues -}}
{{ range $type.EnumValues -}}
- `{{ .Name }}`{{ with .Doc }}: {{ template "text" (regexReplaceAll "^[A-Z]\\w+:? " . "") }}{{ end }}
{{ end }}
{{- else -}}
{{ markdownRenderType $type.UnderlyingType }}; {{ template "limits" $type }}
{{ end }}
{{- end -}}

{{- /* text is a comment of the source as one line that Markdown leaves alone. */ -}}
{{- define "text" -}}
{{ . | trim | replace "\n" " " | replace "|" "\\|" | replace "<" "&lt;" | replace "*" "\\*" }}
{{- end -}}
