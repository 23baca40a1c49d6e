package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheckTextFindsWholeWordsOutsideExceptions(t *testing.T) {
	w, exceptions, err := readLists("# words\nnobody|somebody  a user\ndeeds?  action\n", "docs/.*\\.md  ^> .*Nobody  a quote\n")
	require.NoError(t, err)
	text := "Nobody asked.\nindeed, none\n> Nobody asked.\n"
	assert.Equal(t, []string{`docs/a.md:1: "Nobody": write instead: a user`}, checkText("docs/a.md", text, w, exceptions))
	assert.True(t, exceptions[0].used)
	assert.Len(t, checkText("main.go", text, w, exceptions), 2, "the exception is for another file")
}

func TestListsAreValid(t *testing.T) {
	w, _, err := readLists(wordList, exceptionList)
	require.NoError(t, err)
	assert.NotEmpty(t, w.patterns)
	_, _, err = readLists("word without advice", "")
	require.Error(t, err)
	_, _, err = readLists("", "path  line")
	require.Error(t, err)
}
