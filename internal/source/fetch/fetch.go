// Package fetch brings the code of a job to a directory, from wherever its spec.source says, before the program starts.
package fetch

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/content/tree"
	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
)

// tryTakes bounds one try.
const tryTakes = 10 * time.Minute

// again are the pauses between tries.
var again = wait.Backoff{Duration: 2 * time.Second, Factor: 2, Steps: 6}

// Settings say what to fetch, and where to.
type Settings struct {
	// Source is the spec.source of the job.
	Source podtemplate.Source
	// Directory is where the code comes to lie. What is there is replaced.
	Directory string
	// Files is the folder with the keys of the ConfigMap.
	Files string
	// Credentials is the folder with the keys of the Secret.
	Credentials string
	// Digest that the code must have; empty for any.
	Digest string
	// Clock of the pauses between tries. Default: the real one.
	Clock clock.Clock
}

// attempt is one try to fetch the code.
type attempt struct {
	Settings
	secret secret
	// scratch is a folder for what is not part of the code, such as an archive.
	scratch string
	// code is what is written.
	code *unpack.Tree
}

// Run fetches the code, and returns what it is. An error that the user can do something about is a *source.Problem.
func Run(ctx context.Context, s Settings) (*podtemplate.SourceStatus, error) {
	keys, err := readSecret(s.Credentials)
	if err != nil {
		return nil, err
	}
	status, err := s.run(ctx, keys)
	return status, keys.redact(err)
}

func (s Settings) run(ctx context.Context, keys secret) (*podtemplate.SourceStatus, error) {
	if name := s.Source.Secret(); name != "" && len(keys) == 0 {
		return nil, missingSecret(s.Source)
	}
	s.Clock = cmp.Or(s.Clock, clock.Clock(clock.RealClock{}))
	at, err := newPlace(s.Directory)
	if err != nil {
		return nil, explainVolume(err)
	}
	defer at.remove()
	sum, err := s.persist(ctx, at, keys)
	if err != nil {
		return nil, err
	}
	if s.Digest != "" && s.Digest != sum.Digest {
		return nil, problem(reasons.SourceChanged, "spec.source: the code has changed since the first start: digest %s, not %s of status.source: "+
			"create the job again, or edit spec.source to pin it again", sum.Digest, s.Digest)
	}
	if err := at.move(); err != nil {
		return nil, explainVolume(err)
	}
	return &podtemplate.SourceStatus{
		Digest: sum.Digest, Revision: revision(s.Source), SizeBytes: sum.SizeBytes, Files: int32(sum.Files),
	}, nil
}

// persist tries until the code is there, or another try is of no use.
func (s Settings) persist(ctx context.Context, at *place, keys secret) (tree.Sum, error) {
	for pauses := again; ; {
		sum, err := s.try(ctx, at, keys)
		if _, passes := errors.AsType[*passing](err); !passes || pauses.Steps == 0 {
			return sum, err
		}
		select {
		case <-s.Clock.After(pauses.Step()):
		case <-ctx.Done():
			return sum, err
		}
	}
}

func (s Settings) try(ctx context.Context, at *place, keys secret) (tree.Sum, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTakes)
	defer cancel()
	if err := at.clear(); err != nil {
		return tree.Sum{}, explainVolume(err)
	}
	root, err := os.OpenRoot(at.code())
	if err != nil {
		return tree.Sum{}, err
	}
	defer func() { _ = root.Close() }()
	a := &attempt{Settings: s, secret: keys, scratch: at.scratch(), code: unpack.New(root, unpack.CodeLimits)}
	if err = a.fetch(ctx); err != nil {
		return tree.Sum{}, explainVolume(err)
	}
	return tree.Of(at.code())
}

func (a *attempt) fetch(ctx context.Context) error {
	switch {
	case a.Source.ConfigMap != nil:
		return a.fromConfigMap(ctx)
	case a.Source.Git != nil:
		return a.fromGit(ctx)
	case a.Source.OCI != nil:
		return a.fromOCI(ctx)
	case a.Source.Archive != nil:
		return a.fromArchive(ctx)
	}
	return problem(reasons.SourceInvalid, "spec.source: name exactly one of configMap, git, oci and archive")
}

// revision is what pins a source; empty for a ConfigMap.
func revision(s podtemplate.Source) string {
	switch {
	case s.Git != nil:
		return s.Git.Commit
	case s.OCI != nil:
		_, digest, _ := strings.Cut(s.OCI.Reference, "@")
		return digest
	case s.Archive != nil:
		return s.Archive.SHA256
	}
	return ""
}

// working is the name of the folder for what is not whole yet.
const working = ".operator-source"

// place is a directory that comes to be at once, by a rename.
type place struct {
	directory string
	// work is a folder of the same file system.
	work string
}

// newPlace removes what is in the place, and makes the directories above it. The program may run as another user, and write there.
func newPlace(directory string) (*place, error) {
	p := &place{directory: directory, work: filepath.Join(filepath.Dir(directory), working)}
	if err := makeParents(directory); err != nil {
		return nil, err
	}
	if err := p.clear(); err != nil {
		return nil, err
	}
	return p, os.RemoveAll(directory)
}

// makeParents makes the directories above one that do not exist.
func makeParents(directory string) error {
	above := filepath.Dir(directory)
	if _, err := os.Stat(above); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(above); err != nil {
		return err
	}
	if err := os.Mkdir(above, 0o700); err != nil {
		return err
	}
	return os.Chmod(above, 0o777) //nolint:gosec // see newPlace
}

func (p *place) code() string    { return filepath.Join(p.work, "code") }
func (p *place) scratch() string { return filepath.Join(p.work, "scratch") }

// clear makes the folders, without what an earlier try has left in them.
func (p *place) clear() error {
	p.remove()
	for _, folder := range []string{p.work, p.code(), p.scratch()} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return err
		}
	}
	return os.Chmod(p.code(), 0o777) //nolint:gosec // see newPlace
}

// move brings the code to its place.
func (p *place) move() error { return os.Rename(p.code(), p.directory) }

func (p *place) remove() { _ = os.RemoveAll(p.work) }
