package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// longestLine is what a longer one is cut into.
const longestLine = 64 << 10

// line of a pod's log.
type line struct {
	index   int
	time    time.Time
	stamp   string
	content string
}

// parse a line that begins with its time.
func parse(index int, text string) line {
	stamp, content, ok := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if !ok || err != nil {
		return line{index: index, content: text}
	}
	return line{index: index, time: at, stamp: stamp, content: content}
}

// text of the line, with its end.
func (l *line) text(gang, timestamps bool) string {
	text := l.content + "\n"
	if gang {
		text = fmt.Sprintf("[%d] %s", l.index, text)
	}
	if timestamps && l.stamp != "" {
		text = l.stamp + " " + text
	}
	return text
}

// newestLines returns the last lines by time: at most tail, and of at most limit bytes in all. Of the others nothing stays in memory.
func newestLines(all []line, tail, limit int) []line {
	slices.SortStableFunc(all, func(a, b line) int { return a.time.Compare(b.time) })
	first := len(all)
	for first > 0 && len(all)-first < tail {
		if limit -= len(all[first-1].stamp) + len(all[first-1].content); limit < 0 {
			break
		}
		first--
	}
	if first == 0 {
		return all
	}
	return slices.Clone(all[first:])
}

// eachLine calls do with every line, without its end.
func eachLine(from io.Reader, do func(string) error) error {
	reader := bufio.NewReaderSize(from, longestLine)
	for {
		text, err := reader.ReadSlice('\n')
		if len(text) > 0 {
			if err := do(strings.TrimRight(string(text), "\r\n")); err != nil {
				return err
			}
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}
