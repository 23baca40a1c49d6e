package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// JSON that is known to be valid is walked without reflection, because every submitted job is, and so that all wrong fields can be
// reported at once, by name.

// maxDepth of objects and lists in one another.
const maxDepth = 64

// members calls f for each member of an object, which must be valid JSON. The key is decoded, the value is not.
func members(object []byte, f func(key, value []byte)) {
	i := skipSpace(object, 0) + 1 // {
	for {
		i = skipSpace(object, i)
		if object[i] == '}' {
			return
		}
		end := skipValue(object, i)
		key := object[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			key = []byte(unquote(object[i:end]))
		}
		i = skipSpace(object, skipSpace(object, end)+1) // :
		end = skipValue(object, i)
		f(key, object[i:end])
		if i = skipSpace(object, end); object[i] == ',' {
			i++
		}
	}
}

// elements calls f for each element of a list, which must be valid JSON.
func elements(list []byte, f func(index int, value []byte)) {
	i := skipSpace(list, 0) + 1 // [
	for index := 0; ; index++ {
		i = skipSpace(list, i)
		if list[i] == ']' {
			return
		}
		end := skipValue(list, i)
		f(index, list[i:end])
		if i = skipSpace(list, end); list[i] == ',' {
			i++
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
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		depth := 0
		for {
			switch text[i] {
			case '"':
				i = skipString(text, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	}
	for i < len(text) {
		switch text[i] {
		case ',', '}', ']', ' ', '\n', '\t', '\r':
			return i
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

func isNull(value []byte) bool { return value[0] == 'n' }

// integer reads a whole number, which may be written with a point or an exponent.
func integer(value []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// storable says why a valid JSON value cannot be kept by every store that it passes, as databases and Kubernetes are; empty: it can.
// These are texts with the character 0 or half a surrogate pair, numbers that no floating-point number holds, and what is
// nested very deeply.
func storable(value []byte) string {
	depth := 0
	for i := 0; i < len(value); {
		switch c := value[i]; {
		case c == '"':
			end := skipString(value, i)
			if bytes.IndexByte(value[i:end], '\\') >= 0 {
				if problem := escapes(value[i:end]); problem != "" {
					return problem
				}
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

func escapes(quoted []byte) string {
	for i := 1; i < len(quoted)-1; i++ {
		if quoted[i] != '\\' {
			continue
		}
		i++
		if quoted[i] != 'u' {
			continue
		}
		switch unit := hex(quoted[i+1 : i+5]); {
		case unit == 0:
			return `has a text with the character \u0000: remove it`
		case unit >= 0xdc00 && unit < 0xe000:
			return "has a text with half of a surrogate pair: write the whole character"
		case unit >= 0xd800 && unit < 0xdc00:
			next := quoted[i+5:]
			if len(next) < 7 || next[0] != '\\' || next[1] != 'u' {
				return "has a text with half of a surrogate pair: write the whole character"
			}
			if low := hex(next[2:6]); low < 0xdc00 || low >= 0xe000 {
				return "has a text with half of a surrogate pair: write the whole character"
			}
			i += 6
		}
		i += 4
	}
	return ""
}

func hex(digits []byte) uint64 {
	n, _ := strconv.ParseUint(string(digits), 16, 32) // Valid JSON has hexadecimal digits there.
	return n
}

// readObject says what is wrong with a body that should be one JSON object; nil: nothing.
func readObject(body []byte) *problem {
	if !utf8.Valid(body) {
		return invalid("the body is not valid UTF-8")
	}
	if !json.Valid(body) {
		var target any
		reason := "it is empty"
		var syntax *json.SyntaxError
		if err := json.Unmarshal(body, &target); err != nil && len(bytes.TrimSpace(body)) > 0 {
			reason = err.Error()
			if ok := asSyntax(err, &syntax); ok {
				reason = fmt.Sprintf("%s at byte %d", syntax.Error(), syntax.Offset)
			}
		}
		return invalid("the body is not valid JSON (" + reason + "): correct it")
	}
	if start := bytes.TrimLeft(body, " \n\t\r"); start[0] != '{' {
		return invalid("the body is " + kind(start) + ", but must be an object: put it into braces")
	}
	return nil
}
