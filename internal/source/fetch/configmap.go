package fetch

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// packed is the key of a ConfigMap that has an archive.
const packed = "source.tar.gz"

// fromConfigMap unpacks the archive of a ConfigMap, or copies its keys.
func (a *attempt) fromConfigMap(context.Context) error {
	const field = "spec.source.configMap"
	keys, err := keysOf(a.Files)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return problem(reasons.SourceNotFound, "%s.name: there is no ConfigMap %s, or it is empty: create it with the files as its keys", field, a.Source.ConfigMap.Name)
	}
	if slices.Contains(keys, packed) {
		err = a.unpack(filepath.Join(a.Files, packed))
	} else {
		for _, key := range keys {
			if err = a.copyKey(key); err != nil {
				break
			}
		}
	}
	if known := ownProblem(field, err); known != nil {
		return known
	}
	return err
}

func (a *attempt) copyKey(key string) error {
	file, err := os.Open(filepath.Join(a.Files, key))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return a.code.File(key, false, io.Reader(file))
}

// unpack unpacks an archive of any kind.
func (a *attempt) unpack(archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return a.code.Archive(file)
}
