package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strconv"
	"unicode"
	"unicode/utf16"
)

// JSON that is known to be valid is walked without reflection, because every submitted job is, and so that all wrong fields can be
// reported at once, by name.

// maxDepth of objects and lists in one another.
const maxDepth = 64

// partsOf an object or a list, which must be valid JSON: its values, those of an object with their names, which are decoded.
func partsOf(container []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := skipSpace(container, 1); container[i] != '}' && container[i] != ']'; {
			var name []byte
			if container[0] == '{' {
				end := skipString(container, i)
				name = container[i+1 : end-1]
				if bytes.IndexByte(name, '\\') >= 0 {
					name = []byte(unquote(container[i:end]))
				}
				i = skipSpace(container, skipSpace(container, end)+1) // :
			}
			end := skipValue(container, i)
			if !yield(name, container[i:end]) {
				return
			}
			if i = skipSpace(container, end); container[i] == ',' {
				i = skipSpace(container, i+1)
			}
		}
	}
}

func skipSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

// skipValue returns the end of the value that begins at i.
func skipValue(text []byte, i int) int {
	depth := 0
	for i < len(text) {
		switch text[i] {
		case '"':
			if i = skipString(text, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
			if depth < 0 {
				return i
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

func skipString(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote decodes a JSON string, which must be valid.
func unquote(raw []byte) string {
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	var text string
	_ = json.Unmarshal(raw, &text) // It is known to be valid.
	return text
}

// kind names the type of a JSON value for messages.
func kind(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// whole reads a whole number, which may be written with a point or an exponent.
func whole(value []byte) (int, bool) {
	if n, err := strconv.Atoi(string(value)); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int(f), true
}

// unstorable says why a valid JSON value cannot be kept by every store that it passes, as databases and Kubernetes are; empty: it can.
// These are texts with the character 0 or half a surrogate pair, numbers that no floating-point number holds, and what is
// nested very deeply.
func unstorable(value []byte) string {
	depth := 0
	for i := 0; i < len(value); {
		switch c := value[i]; {
		case c == '"':
			end := skipString(value, i)
			if problem := unstorableEscape(value[i:end]); problem != "" {
				return problem
			}
			i = end
			continue
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Sprintf("has more than %d objects and lists in one another: make it flatter", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end := skipValue(value, i)
			if _, err := strconv.ParseFloat(string(value[i:end]), 64); err != nil || end-i > 400 {
				return "has a number that is too large or too long: write it as a text"
			}
			i = end
			continue
		}
		i++
	}
	return ""
}

// unstorableEscape says which character of a quoted text, written by its number, cannot be kept.
func unstorableEscape(quoted []byte) string {
	for {
		i := bytes.IndexByte(quoted, '\\')
		switch {
		case i < 0:
			return ""
		case quoted[i+1] != 'u':
			quoted = quoted[i+2:]
			continue
		}
		unit, rest := codeUnit(quoted[i:]), quoted[i+6:]
		if unit == 0 {
			return `has a text with the character \u0000: remove it`
		}
		if utf16.IsSurrogate(unit) {
			if !bytes.HasPrefix(rest, []byte(`\u`)) || utf16.DecodeRune(unit, codeUnit(rest)) == unicode.ReplacementChar {
				return "has a text with half of a surrogate pair: write the whole character"
			}
			rest = rest[6:]
		}
		quoted = rest
	}
}

// codeUnit of UTF-16 that a text begins with, written as \uXXXX.
func codeUnit(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // Valid JSON has hexadecimal digits there.
	return rune(n)
}
