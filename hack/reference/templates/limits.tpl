{{- /* limits says in words what the schema allows in a field. */ -}}
{{- define "limits" -}}
{{- $limits := dict -}}
{{- range .Validation -}}
  {{- $limit := regexReplaceAll "^[A-Za-z:]+: " . "" -}}
  {{- if regexMatch "^[0-9.]+e\\+[0-9]+$" $limit -}}{{- $limit = $limit | float64 | int64 | toString -}}{{- end -}}
  {{- $_ := set $limits (regexFind "^[A-Za-z:]+: " . | trimSuffix ": ") $limit -}}
{{- end -}}
{{- $words := list -}}
{{- range $each := list "" "items:" -}}
  {{- $said := list -}}
  {{- range $bounds := list (list "Minimum" "Maximum" "") (list "MinItems" "MaxItems" " items") (list "MinProperties" "MaxProperties" " entries") (list "MinLength" "MaxLength" " characters") -}}
    {{- $low := get $limits (print $each (index $bounds 0)) -}}
    {{- $high := get $limits (print $each (index $bounds 1)) -}}
    {{- if and (eq (index $bounds 0) "Minimum") (hasKey $limits (print $each "ExclusiveMinimum")) -}}{{- $said = append $said (print "above " $low) -}}{{- $low = "" -}}{{- end -}}
    {{- if and (eq (index $bounds 0) "MinLength") (has $low (list "0" "1")) -}}{{- $low = "" -}}{{- end -}}
    {{- if and $low $high -}}{{- $said = append $said (print $low " to " $high (index $bounds 2)) -}}
    {{- else if $low -}}{{- $said = append $said (print "at least " $low (index $bounds 2)) -}}
    {{- else if $high -}}{{- $said = append $said (print "at most " $high (index $bounds 2)) -}}
    {{- end -}}
  {{- end -}}
  {{- with get $limits (print $each "Enum") -}}
    {{- $said = append $said (printf "one of `%s`" (. | trimPrefix "[" | trimSuffix "]" | replace " " "`, `")) -}}
  {{- end -}}
  {{- with get $limits (print $each "Pattern") -}}
    {{- $said = append $said (print "matches " (. | replace "|" "\\|")) -}}
  {{- end -}}
  {{- if $said -}}{{- $words = append $words (print (ternary "each " "" (eq $each "items:")) (join "; " $said)) -}}{{- end -}}
{{- end -}}
{{- join "; " $words -}}
{{- end -}}

{{- /* fieldRules are the messages of a field's own rules; those of a type of our own stand in its section. */ -}}
{{- define "fieldRules" -}}
{{- if not (hasPrefix "github.com/dcnlab/" .Type.Package) -}}
  {{- range $i, $rule := index .Markers "kubebuilder:validation:XValidation" -}}
    {{- if $i }}<br>{{ else }} {{ end }}{{ template "message" $rule -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* rules are the messages of a type's rules. Those of fields that can be changed at times only, which differ in the field alone, are one. */ -}}
{{- define "rules" -}}
{{- $kept := list -}}{{- $others := list -}}{{- $when := "" -}}
{{- range index .Markers "kubebuilder:validation:XValidation" -}}
  {{- if contains ": can be changed only while " .Message -}}
    {{- $kept = append $kept (regexFind "^[^:]+" .Message) -}}
    {{- $when = regexReplaceAll "^[^:]+: " .Message "" -}}
  {{- else -}}
    {{- $others = append $others . -}}
  {{- end -}}
{{- end -}}
{{- if or $others $kept }}
What the API server refuses, in its words:

{{ range $others -}}
- {{ template "message" . }}
{{ end -}}
{{- with $kept | uniq -}}
- a change of {{ range $i, $field := . }}{{ if $i }}, {{ end }}`{{ $field }}`{{ end }}: {{ $when }}
{{ end -}}
{{- end -}}
{{- end -}}

{{- /* message is what a rule says; what depends on the object is written as an ellipsis. */ -}}
{{- define "message" -}}
{{- $said := .Message -}}
{{- if not $said -}}
  {{- $said = .MessageExpression -}}
  {{- $said = regexReplaceAll "'\\.format\\(.*$" $said "'" -}}
  {{- $said = regexReplaceAll "%[ds]" $said "…" -}}
  {{- $said = regexReplaceAll "[\"'] \\+ [^\"']+ \\+ [\"']" $said "…" -}}
  {{- $said = regexReplaceAll "[\"'] \\+ [^\"']+$" $said "…" -}}
  {{- $said = regexReplaceAll "^[\"']|[\"']$" $said "" -}}
{{- end -}}
{{- template "text" $said -}}
{{- end -}}
