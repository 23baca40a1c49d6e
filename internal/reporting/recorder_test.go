package reporting

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/tools/events"
)

func TestShortenKeepsTheBeginningAndTheEnd(t *testing.T) {
	traceback := "restart 1: worker 0 ended with exit code 1: Traceback (most recent call last): " +
		strings.Repeat(`File "train.py", line 12, in forward `, 60) + "RuntimeError: CUDA error"
	for name, text := range map[string]string{
		"a short text":           "restart 1: worker 0 ended",
		"a text that just fits":  strings.Repeat("ab ", 341) + "c",
		"a traceback":            traceback,
		"one word":               strings.Repeat("x", 5000),
		"words of several bytes": strings.Repeat("数字 ", 1000) + "結束",
		"a word of such":         strings.Repeat("数", 1000),
		"nothing":                "",
	} {
		t.Run(name, func(t *testing.T) {
			is := shorten(text)
			assert.LessOrEqual(t, len(is), longestNote)
			assert.True(t, utf8.ValidString(is))
			if len(text) <= longestNote {
				assert.Equal(t, text, is)
				return
			}
			head, tail, cut := strings.Cut(is, " ... ")
			assert.True(t, cut)
			assert.True(t, strings.HasPrefix(text, head))
			assert.True(t, strings.HasSuffix(text, tail))
			assert.Greater(t, len(is), longestNote*9/10, "no more is cut than must be")
		})
	}
	assert.Contains(t, shorten(traceback), "restart 1: worker 0 ended with exit code 1: Traceback")
	assert.True(t, strings.HasSuffix(shorten(traceback), "RuntimeError: CUDA error"))
}

func TestNotesCarryNoSecrets(t *testing.T) {
	fake := events.NewFakeRecorder(1)
	fitting{fake}.Eventf(nil, nil, "Warning", "Failed", "Fail", "%s and 100%%", "token=abcdef")
	assert.Equal(t, "Warning Failed token=*** and 100%", <-fake.Events)
}
