package source

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// ignoreFile says what of a directory is not packed, in the syntax of .gitignore.
const ignoreFile = ".trainignore"

// ignored returns a function that says whether a path below root is not packed.
func ignored(root *os.Root) (func(file string, directory bool) bool, error) {
	text, err := root.ReadFile(ignoreFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var patterns []gitignore.Pattern
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			patterns = append(patterns, gitignore.ParsePattern(line, nil))
		}
	}
	matcher := gitignore.NewMatcher(patterns)
	return func(file string, directory bool) bool {
		return path.Base(file) == ".git" || matcher.Match(strings.Split(file, "/"), directory)
	}, nil
}
