{{- /*
  section writes the section of a type of our own, then those of the types that its fields lead to, in the order of the
  fields. A type has one section, at the path that leads to it first.
*/ -}}
{{- define "section" -}}
{{- $type := .type -}}{{- $path := .path -}}{{- $seen := .seen -}}
{{- if eq (int $type.Kind) 3 -}}
  {{- template "section" (dict "type" $type.ValueType "path" (print $path ".*") "seen" $seen) -}}
{{- else if eq (int $type.Kind) 4 -}}
  {{- template "section" (dict "type" $type.UnderlyingType "path" $path "seen" $seen) -}}
{{- else if eq (int $type.Kind) 5 -}}
  {{- template "section" (dict "type" $type.UnderlyingType "path" (print $path "[]") "seen" $seen) -}}
{{- else if and (hasPrefix "github.com/dcnlab/" $type.Package) (not (hasKey $seen $type.UID)) -}}
  {{- $_ := set $seen $type.UID true -}}
  {{- template "type" (dict "type" $type "path" $path) -}}
  {{- range $type.Members -}}
    {{- if ne .Name "metadata" -}}
      {{- template "section" (dict "type" .Type "path" (ternary .Name (printf "%s.%s" $path .Name) (eq $path "")) "seen" $seen) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}
