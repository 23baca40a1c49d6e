package process

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// Record is what is remembered of a started process.
type Record struct {
	// Name is the name of the role the process plays, unique in a table.
	Name string `json:"name"`
	Identity
	// Command is the program's path and arguments.
	Command []string `json:"command"`
	// Log is the file that receives standard output and error.
	Log string `json:"log"`
	// Started is the wall clock time of the start.
	Started time.Time `json:"started"`
}

// Table is a folder with one file for each recorded process.
type Table struct{ dir string }

// NewTable returns the table in dir, which is made when the first record is saved.
func NewTable(dir string) Table { return Table{dir: dir} }

// Get returns the record of name; ok is false when there is none.
func (t Table) Get(name string) (record Record, ok bool, err error) {
	ok, err = host.LoadJSON(t.file(name), &record)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		// A file that was cut off by a crash is worthless; the process is found by its mark.
		return Record{}, false, nil
	}
	return record, ok, err
}

// Running returns the record of name if its process runs.
func (t Table) Running(name string) (record Record, running bool, err error) {
	record, _, err = t.Get(name)
	return record, err == nil && record.Alive(), err
}

// List returns all records, sorted by name.
func (t Table) List() ([]Record, error) {
	files, err := filepath.Glob(filepath.Join(t.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var records []Record
	for _, file := range files {
		record, ok, err := t.Get(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, err
		}
		if ok {
			records = append(records, record)
		}
	}
	return records, nil
}

// Save writes the record atomically.
func (t Table) Save(record Record) error { return host.SaveJSON(t.file(record.Name), record) }

// Remove forgets name; a missing record is not an error.
func (t Table) Remove(name string) error {
	err := os.Remove(t.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (t Table) file(name string) string { return filepath.Join(t.dir, name+".json") }
