package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
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
	content, err := os.ReadFile(t.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read record of %s: %w", name, err)
	}
	if err := json.Unmarshal(content, &record); err != nil {
		// A file that was cut off by a crash says nothing; the process is found by its mark.
		return Record{}, false, nil
	}
	return record, true, nil
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

// Save writes the record so that a crash leaves either the old file or the new one.
func (t Table) Save(record Record) error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	content, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	partial := t.file(record.Name) + ".partial"
	if err := os.WriteFile(partial, content, 0o644); err != nil {
		return err
	}
	return os.Rename(partial, t.file(record.Name))
}

// Remove forgets name; it is no error when there is no such record.
func (t Table) Remove(name string) error {
	err := os.Remove(t.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (t Table) file(name string) string { return filepath.Join(t.dir, name+".json") }
