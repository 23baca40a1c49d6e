// Package redact takes secrets out of text that others wrote and the operator repeats: a worker's last words, a message
// of the kubelet, an error of a server. It knows a secret by its form or by the name in front of it; a bare word it
// cannot know.
package redact

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// mask stands where a secret was.
const mask = "***"

// shortest is the length of the shortest value that is looked for by itself: shorter ones are parts of common words.
const shortest = 6

// secretNames end the names of what is secret. Their plural is left alone: tokens=512 is a length.
const secretNames = `(?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key|secret[-_]?key|private[-_]?key|account[-_]?key|credential)`

// replacements are the forms of secrets, each with what is put in the place of a match. The longer forms come first.
var replacements = []struct {
	form *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|$)`), mask},
	// The user information of a URL (RFC 3986, 3.2.1).
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s@]+@`), "${1}" + mask + "@"},
	// Signed URLs of S3, Google and Azure.
	{regexp.MustCompile(`(?i)([?&](?:sig|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|x-goog-credential)=)[^&\s"']+`), "${1}" + mask},
	{regexp.MustCompile(`(?i)\b(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic|token)\s+)?)[^\s"',;]+`), "${1}" + mask},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "${1} " + mask},
	{regexp.MustCompile(`(?i)(` + secretNames + `["']?\s*[:=]\s*["']?)[^\s"',;&]+`), "${1}" + mask},
	{regexp.MustCompile(`(?i)(--[a-z0-9-]*` + secretNames + `\s+)[^\s"',;&]+`), "${1}" + mask},
	// JSON Web Tokens (RFC 7519), and the tokens of services that give theirs a prefix.
	{regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`), mask},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`), mask},
	{regexp.MustCompile(`\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-)[\w-]{16,}`), mask},
}

var endsInSecretName = regexp.MustCompile(`(?i)` + secretNames + `$`)

// Text returns a text without the secrets in it that can be known as such: the given values, and whatever has the form of
// a secret or stands behind the name of one.
func Text(text string, known ...string) string {
	if text == "" {
		return ""
	}
	// A value that contains another goes first, or its rest would stay.
	values := slices.Clone(known)
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		if len(value) >= shortest {
			text = strings.ReplaceAll(text, value, mask)
		}
	}
	for _, r := range replacements {
		text = r.form.ReplaceAllString(text, r.by)
	}
	return text
}

// NamesSecret says whether a variable or parameter of this name holds a secret, as WANDB_API_KEY and db-password do.
func NamesSecret(name string) bool {
	return endsInSecretName.MatchString(name)
}

// LogAttribute takes secrets out of the messages, texts and errors of a log line. It is for slog.HandlerOptions.
func LogAttribute(_ []string, attribute slog.Attr) slog.Attr {
	switch attribute.Value.Kind() {
	case slog.KindString:
		attribute.Value = slog.StringValue(Text(attribute.Value.String()))
	case slog.KindAny:
		if err, ok := attribute.Value.Any().(error); ok && err != nil {
			attribute.Value = slog.StringValue(Text(err.Error()))
		}
	}
	return attribute
}
