// Package manifest reads, makes and checks the manifest.json of checkpoints, as the worker contract
// (docs/worker-contract.md) describes it: the list of a checkpoint's files with their sizes and SHA-256.
package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FileName is the name of the manifest in the directory of its checkpoint.
const FileName = "manifest.json"

// Unfinished is the name that a file has until it is written whole.
func Unfinished(name string) string { return "." + name + ".tmp" }

// MaxBytes bounds the text of a manifest. It holds some hundred thousand files.
const MaxBytes = 64 << 20

var (
	namePattern = regexp.MustCompile(`^checkpoint-(epoch|step)-([0-9]{1,18})$`)
	sumPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// InvalidError says what is wrong with a checkpoint. Other errors mean that it could not be looked at.
type InvalidError struct{ Message string }

func (e *InvalidError) Error() string { return e.Message }

// Invalid makes an InvalidError.
func Invalid(format string, arguments ...any) error {
	return &InvalidError{Message: fmt.Sprintf(format, arguments...)}
}

// IsInvalid says whether err means that a checkpoint is not what it should be.
func IsInvalid(err error) bool {
	_, invalid := errors.AsType[*InvalidError](err)
	return invalid
}

// IsName says whether a directory of this name is a checkpoint: checkpoint-epoch-<n> or checkpoint-step-<n>.
func IsName(name string) bool { return namePattern.MatchString(name) }

// position is the epoch or the step in a checkpoint's name.
func position(name string) (epoch int32, step int64) {
	parts := namePattern.FindStringSubmatch(name)
	if parts == nil {
		return 0, 0
	}
	number, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return 0, 0
	}
	if parts[1] == "epoch" {
		return int32(min(number, 1<<31-1)), 0 //nolint:gosec // bounded in the same line
	}
	return 0, number
}

// Name is a checkpoint's name by its position.
func (m *Manifest) Name() string {
	if m.Step > 0 {
		return "checkpoint-step-" + strconv.FormatInt(m.Step, 10)
	}
	return "checkpoint-epoch-" + strconv.Itoa(int(m.Epoch))
}

// File is one file of a checkpoint.
type File struct {
	// Path relative to the checkpoint, with slashes.
	Path string `json:"path"`
	// Size in bytes.
	Size int64 `json:"size"`
	// SHA256 of the content, in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// Manifest is what a manifest says that the agent needs; Text has all of it.
type Manifest struct {
	Epoch   int32     `json:"epoch"`
	Step    int64     `json:"step"`
	Created time.Time `json:"createdTime"`
	Files   []File    `json:"files"`
	// Text as it was read or made. A copy of a checkpoint gets the same, with all that its program wrote there.
	Text []byte `json:"-"`
}

// SizeBytes of all files.
func (m *Manifest) SizeBytes() int64 {
	var sum int64
	for _, f := range m.Files {
		sum += f.Size
	}
	return sum
}

// Brief is what orders a checkpoint among others.
func (m *Manifest) Brief() *Manifest {
	return &Manifest{Epoch: m.Epoch, Step: m.Step, Created: m.Created}
}

// Compare orders checkpoints by age: it is above 0 when a is newer than b, that is, has more steps; of equal ones the
// one with more epochs, then the later time. When one counts only epochs and the other only steps, as made for programs that
// write no manifest, the time alone tells.
func Compare(a, b *Manifest) int {
	if (a.countsEpochs() && b.countsSteps()) || (a.countsSteps() && b.countsEpochs()) {
		return a.Created.Compare(b.Created)
	}
	return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Epoch, b.Epoch), a.Created.Compare(b.Created))
}

func (m *Manifest) countsEpochs() bool { return m.Epoch > 0 && m.Step == 0 }

func (m *Manifest) countsSteps() bool { return m.Step > 0 && m.Epoch == 0 }

// SameFiles says whether two checkpoints have the same files with the same content.
func SameFiles(a, b *Manifest) bool {
	files := make(map[File]bool, len(a.Files))
	for _, f := range a.Files {
		files[f] = true
	}
	return len(a.Files) == len(b.Files) && !slices.ContainsFunc(b.Files, func(f File) bool { return !files[f] })
}

// Parse reads a manifest and checks that it makes sense. Its errors are InvalidErrors.
func Parse(text []byte) (*Manifest, error) {
	m := &Manifest{Epoch: -1, Step: -1, Text: text} // until it says them
	if err := json.Unmarshal(text, m); err != nil {
		return nil, Invalid("its %s cannot be read: %v", FileName, err)
	}
	if m.Epoch < 0 || m.Step < 0 {
		return nil, Invalid("its %s lacks epoch or step, which must be numbers from 0", FileName)
	}
	if m.Created.IsZero() {
		return nil, Invalid("its %s lacks createdTime", FileName)
	}
	if len(m.Files) == 0 {
		return nil, Invalid("its %s lists no files", FileName)
	}
	seen := map[string]bool{}
	for i := range m.Files {
		f := &m.Files[i]
		f.SHA256 = strings.ToLower(f.SHA256)
		switch {
		case !fs.ValidPath(f.Path) || f.Path == "." || strings.Contains(f.Path, `\`):
			return nil, Invalid("its %s names %q, which is no path within it", FileName, f.Path)
		case path.Clean(f.Path) == FileName:
			return nil, Invalid("its %s names itself among the files", FileName)
		case seen[f.Path]:
			return nil, Invalid("its %s names %q twice", FileName, f.Path)
		case f.Size < 0 || !sumPattern.MatchString(f.SHA256):
			return nil, Invalid("its %s has no right size and SHA-256 for %q", FileName, f.Path)
		}
		seen[f.Path] = true
	}
	for file := range seen {
		for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
			if seen[folder] {
				return nil, Invalid("its %s names %q as a file and as a folder", FileName, folder)
			}
		}
	}
	return m, nil
}

// made is the JSON form of a manifest for a checkpoint whose program wrote none.
type made struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	MadeBy    string `json:"madeBy"`
	SizeBytes int64  `json:"sizeBytes"`
	*Manifest
}

// New makes the manifest of a checkpoint whose program wrote none. Epoch and step are those in its name, so that the
// other of the two is 0.
func New(name string, created time.Time, files []File) (*Manifest, error) {
	epoch, step := position(name)
	files = slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	m := &Manifest{Epoch: epoch, Step: step, Created: created.UTC().Truncate(time.Second), Files: files}
	var err error
	m.Text, err = json.MarshalIndent(made{1, name, "checkpoint-agent", m.SizeBytes(), m}, "", "  ")
	return m, err
}
