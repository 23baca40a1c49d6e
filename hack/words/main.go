// Command words prints the lines of the repository that use words of words.txt, and exits with 1 when there are any. `make lint` runs it.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

var (
	//go:embed words.txt
	wordList string
	//go:embed exceptions.txt
	exceptionList string
)

// words are what not to write, each with what to write instead.
type words struct {
	// any matches what one of the patterns matches.
	any      *regexp.Regexp
	patterns []*regexp.Regexp
	advice   []string
}

// exception is a set of lines that may use the words.
type exception struct {
	path, line *regexp.Regexp
	text       string
	used       bool
}

func main() {
	findings, err := check()
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	for _, finding := range findings {
		fmt.Println(finding)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// check reads all tracked text below the working directory.
func check() ([]string, error) {
	w, exceptions, err := readLists(wordList, exceptionList)
	if err != nil {
		return nil, err
	}
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
	list.Stderr = os.Stderr
	paths, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tracked files: %w", err)
	}
	var findings []string
	for _, path := range strings.Split(strings.TrimRight(string(paths), "\x00"), "\x00") {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) { // a deleted file is tracked until the deletion is staged
			return nil, err
		}
		if bytes.IndexByte(text, 0) < 0 {
			findings = append(findings, checkText(path, string(text), w, exceptions)...)
		}
	}
	for _, e := range exceptions {
		if !e.used {
			findings = append(findings, "hack/words/exceptions.txt: matches nothing: "+e.text)
		}
	}
	return findings, nil
}

// checkText returns the findings in one file, and marks the exceptions that it uses.
func checkText(path, text string, w words, exceptions []*exception) []string {
	var findings []string
	for i, line := range strings.Split(text, "\n") {
		if !w.any.MatchString(line) || isAllowed(path, line, exceptions) {
			continue
		}
		for n, pattern := range w.patterns {
			if found := pattern.FindString(line); found != "" {
				findings = append(findings, fmt.Sprintf("%s:%d: %q: write instead: %s", path, i+1, found, w.advice[n]))
			}
		}
	}
	return findings
}

func isAllowed(path, line string, exceptions []*exception) bool {
	for _, e := range exceptions {
		if e.path.MatchString(path) && e.line.MatchString(line) {
			e.used = true
			return true
		}
	}
	return false
}

// readLists reads a list of words ("pattern  advice") and one of exceptions ("path  line  reason"), with two or more spaces between.
func readLists(wordList, exceptionList string) (w words, exceptions []*exception, err error) {
	var all []string
	for _, row := range rows(wordList) {
		if len(row) != 2 {
			return words{}, nil, fmt.Errorf("words.txt: want a pattern and an advice: %q", row)
		}
		pattern, err := regexp.Compile(`(?i)\b(` + row[0] + `)\b`)
		if err != nil {
			return words{}, nil, fmt.Errorf("words.txt: %w", err)
		}
		w.patterns, w.advice, all = append(w.patterns, pattern), append(w.advice, row[1]), append(all, row[0])
	}
	if w.any, err = regexp.Compile(`(?i)\b(` + strings.Join(all, "|") + `)\b`); err != nil {
		return words{}, nil, fmt.Errorf("words.txt: %w", err)
	}
	for _, row := range rows(exceptionList) {
		if len(row) != 3 {
			return words{}, nil, fmt.Errorf("exceptions.txt: want a path, a line and a reason: %q", row)
		}
		e := exception{text: strings.Join(row, "  ")}
		if e.path, err = regexp.Compile(`^(` + row[0] + `)$`); err == nil {
			e.line, err = regexp.Compile(row[1])
		}
		if err != nil {
			return words{}, nil, fmt.Errorf("exceptions.txt: %w", err)
		}
		exceptions = append(exceptions, &e)
	}
	return w, exceptions, nil
}

// rows are the columns of all lines but empty ones and comments.
func rows(list string) [][]string {
	var found [][]string
	for _, line := range strings.Split(list, "\n") {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			found = append(found, regexp.MustCompile(` {2,}`).Split(line, -1))
		}
	}
	return found
}
