package unpack_test

import (
	"archive/tar"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
)

func TestLayers(t *testing.T) {
	lower := []*tar.Header{file("a/x", "1"), file("a/y", "1"), file("a/d/z", "1"), file("b", "1"), link("l", "a")}
	for name, test := range map[string]struct {
		upper []*tar.Header
		want  map[string]string
	}{
		"adds and replaces": {
			[]*tar.Header{folder("a"), file("a/x", "2"), file("c", "2")},
			map[string]string{"a/": "", "a/x": "2", "a/y": "1", "a/d/": "", "a/d/z": "1", "b": "1", "c": "2", "l": "->a"},
		},
		"deletes a file": {
			[]*tar.Header{file("a/.wh.x", ""), file(".wh.l", "")},
			map[string]string{"a/": "", "a/y": "1", "a/d/": "", "a/d/z": "1", "b": "1"},
		},
		"deletes a directory": {
			[]*tar.Header{file(".wh.a", "")},
			map[string]string{"b": "1", "l": "->a"},
		},
		"deletes what is not there": {
			[]*tar.Header{file(".wh.none", ""), file(".wh..wh.plnk", "")},
			map[string]string{"a/": "", "a/x": "1", "a/y": "1", "a/d/": "", "a/d/z": "1", "b": "1", "l": "->a"},
		},
		"deletes all of a directory": {
			[]*tar.Header{folder("a"), file("a/.wh..wh..opq", ""), file("a/new", "2")},
			map[string]string{"a/": "", "a/new": "2", "b": "1", "l": "->a"},
		},
		"deletes all of a directory, and says so last": {
			[]*tar.Header{folder("a"), file("a/d/new", "2"), file("a/y", "2"), file("a/.wh..wh..opq", "")},
			map[string]string{"a/": "", "a/d/": "", "a/d/new": "2", "a/y": "2", "b": "1", "l": "->a"},
		},
		"deletes all": {
			[]*tar.Header{file(".wh..wh..opq", ""), file("c", "2")},
			map[string]string{"c": "2"},
		},
		"deletes what it has itself only below": {
			[]*tar.Header{file("b", "2"), file(".wh.b", ""), file("a/x", "2"), file(".wh.a", "")},
			map[string]string{"a/": "", "a/x": "2", "b": "2", "l": "->a"},
		},
		"has a file for a directory": {
			[]*tar.Header{file("a", "2")},
			map[string]string{"a": "2", "b": "1", "l": "->a"},
		},
		"has a directory for a file and for a link": {
			[]*tar.Header{folder("b"), file("b/x", "2"), folder("l"), file("l/x", "2")},
			map[string]string{"a/": "", "a/x": "1", "a/y": "1", "a/d/": "", "a/d/z": "1", "b/": "", "b/x": "2", "l/": "", "l/x": "2"},
		},
		"has a directory for a deleted one": {
			[]*tar.Header{file(".wh.a", ""), file("a/new", "2")},
			map[string]string{"a/": "", "a/new": "2", "b": "1", "l": "->a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := directory(t)
			into := unpack.New(root, limits)
			require.NoError(t, into.Layer(bytesOf(tarOf(t, lower...))))
			require.NoError(t, into.Layer(bytesOf(gzipped(t, tarOf(t, test.upper...)))))
			assert.Empty(t, cmp.Diff(test.want, contents(t, dir)))
		})
	}
}

func TestLayersThatAreRefused(t *testing.T) {
	lower := []*tar.Header{file("a/x", "1"), link("l", "a")}
	for name, test := range map[string]struct {
		upper []*tar.Header
		want  string
	}{
		"through a link below":              {[]*tar.Header{file("l/x", "2")}, "the entry l/x leads through l, which is no directory"},
		"through its own link":              {[]*tar.Header{link("m", "a"), file("m/x", "2")}, "the entry m/x leads through m, which is no directory"},
		"a directory on its own link":       {[]*tar.Header{link("m", "a"), folder("m")}, "the entry m leads through m, which is no directory"},
		"a file on its own directory":       {[]*tar.Header{folder("m"), file("m", "")}, "the entry m is a directory and a file"},
		"a deletion through a link":         {[]*tar.Header{file("l/.wh.x", "")}, "the entry l/.wh.x leads through l, which is no directory"},
		"a deletion outside":                {[]*tar.Header{file("../.wh.outside", "")}, "the entry ../.wh.outside leads out of the directory"},
		"a deletion of an absolute path":    {[]*tar.Header{file("/.wh.a", "")}, "the entry /.wh.a is an absolute path"},
		"a deletion of the directory above": {[]*tar.Header{file("a/.wh...", "")}, "the entry a/.wh... is a whiteout of nothing: pack the layer without it"},
		"a deletion of the directory":       {[]*tar.Header{file("a/.wh..", "")}, "the entry a/.wh.. is a whiteout of nothing"},
		"a deletion of nothing":             {[]*tar.Header{file("a/.wh.", "")}, "the entry a/.wh. is a whiteout of nothing"},
		"all of what is above, deleted":     {[]*tar.Header{file("../.wh..wh..opq", "")}, "leads out of the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, root := directory(t)
			into := unpack.New(root, limits)
			require.NoError(t, into.Layer(bytesOf(tarOf(t, lower...))))
			requireInvalid(t, into.Layer(bytesOf(tarOf(t, test.upper...))), test.want)
		})
	}
}
