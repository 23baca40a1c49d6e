package checkpointagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
)

// Bounds of --expires. No provider takes more than a week.
const (
	leastExpiry = time.Minute
	mostExpiry  = 7 * 24 * time.Hour
)

// Values of --output.
const (
	outputJSON = "json"
	outputCurl = "curl"
)

// signing are the flags of the subcommand sign.
type signing struct {
	uri, credentials, checkpoint, output string
	expires                              time.Duration
}

// signedCheckpoint is the JSON form of the subcommand's answer.
type signedCheckpoint struct {
	// Checkpoint is its URI.
	Checkpoint string `json:"checkpoint"`
	// Expires is until when the URLs can be used.
	Expires time.Time          `json:"expires"`
	Files   []store.SignedFile `json:"files"`
}

func newSign() *cobra.Command {
	var s signing
	command := &cobra.Command{
		Use: "sign", Args: cobra.NoArgs,
		Short: "Print URLs by which everyone can download a checkpoint for a time",
		Long: "Print URLs by which everyone who has them can download the files of a checkpoint in an object store, until they\n" +
			"expire. In the container checkpoint-agent of a TrainingJob the store and the credentials are those of the job.",
		RunE: func(command *cobra.Command, _ []string) error {
			return s.run(command.Context(), os.Getenv, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.uri, "uri", "", "where the checkpoints lie, in the form of spec.checkpoint.resumeFrom, such as s3://bucket/path?region=R&endpoint=U; "+
		"default: the area of the job ("+envStore+")")
	flags.StringVar(&s.credentials, "credentials", "", "a directory with a file for each key of the Secret with the credentials; "+
		"default with the area of the job: its own ("+envCredentials+"), else those of the environment")
	flags.StringVar(&s.checkpoint, "checkpoint", "", "the name of the checkpoint, such as checkpoint-epoch-3; default: the newest that is whole")
	flags.DurationVar(&s.expires, "expires", time.Hour, "how long the URLs can be used, from 1m to 168h")
	flags.StringVar(&s.output, "output", outputJSON, "json, or curl: what curl --config - downloads the checkpoint with")
	return command
}

// run signs. The URLs go to out and nowhere else: any client that has one can read the file.
func (s *signing) run(ctx context.Context, env func(string) string, out, problems io.Writer) error {
	from, err := s.settle(env)
	if err != nil {
		return exitError{err, exitSettings}
	}
	until := time.Now().Add(s.expires).UTC().Truncate(time.Second)
	chosen, files, err := s.sign(ctx, from, problems)
	if _, none := errors.AsType[exitError](err); none {
		return err
	}
	if err != nil {
		return from.Explain(err)
	}
	if s.output == outputCurl {
		return writeCurl(out, chosen.Name, files)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(signedCheckpoint{Checkpoint: from.URIOf(chosen), Expires: until, Files: files})
}

// settle checks the flags, and opens the store.
func (s *signing) settle(env func(string) string) (*store.Store, error) {
	switch {
	case s.expires < leastExpiry || s.expires > mostExpiry:
		return nil, fmt.Errorf("--expires: %s is less than 1m or more than 168h: choose a time between", s.expires)
	case s.output != outputJSON && s.output != outputCurl:
		return nil, fmt.Errorf("--output: %q is neither json nor curl", s.output)
	case s.checkpoint != "" && !manifest.IsName(s.checkpoint):
		return nil, fmt.Errorf("--checkpoint: %q is no name such as checkpoint-epoch-3 or checkpoint-step-1200", s.checkpoint)
	}
	uri, credentials := s.uri, s.credentials
	if uri == "" {
		if uri = env(envStore); uri == "" {
			return nil, errors.New("--uri: is missing, and the checkpoints of this pod lie in no object store: name one, or copy from the volume by kubectl cp")
		}
		if credentials == "" {
			credentials = env(envCredentials)
		}
	}
	from, err := store.New(uri, credentials)
	if err != nil {
		return nil, fmt.Errorf("--uri: %w", err)
	}
	return from, nil
}

// sign signs the checkpoint that is asked for, or the newest that is whole.
func (s *signing) sign(ctx context.Context, from *store.Store, problems io.Writer) (store.Remote, []store.SignedFile, error) {
	found, skipped, err := from.Find(ctx)
	if err != nil {
		return store.Remote{}, nil, err
	}
	var why []string
	for _, bad := range skipped {
		if s.checkpoint == "" || path.Base(bad.Path) == s.checkpoint {
			why = append(why, path.Base(bad.Path)+": "+bad.Message)
		}
	}
	for _, one := range found {
		if s.checkpoint != "" && one.Name != s.checkpoint {
			continue
		}
		files, err := from.Sign(ctx, one, s.expires)
		if !manifest.IsInvalid(err) {
			return one, files, err
		}
		why = append(why, one.Name+": "+err.Error())
		_, _ = fmt.Fprintf(problems, "%s is passed over: %v\n", one.Name, err)
	}
	what := "checkpoint"
	if s.checkpoint != "" {
		what = s.checkpoint
	}
	text := fmt.Sprintf("there is no %s at %s", what, from)
	if len(why) > 0 {
		text = fmt.Sprintf("no %s at %s is whole (%s)", what, from, strings.Join(why[:min(len(why), 3)], "; "))
	}
	return store.Remote{}, nil, exitError{errors.New(text), exitNotFound}
}

// writeCurl writes a configuration of curl that downloads the files into a directory of the checkpoint's name.
func writeCurl(out io.Writer, name string, files []store.SignedFile) error {
	if _, err := io.WriteString(out, "fail\ncreate-dirs\n"); err != nil {
		return err
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`)
	for _, f := range files {
		if _, err := fmt.Fprintf(out, "url = \"%s\"\noutput = \"%s\"\n", quote.Replace(f.URL), quote.Replace(path.Join(name, f.Path))); err != nil {
			return err
		}
	}
	return nil
}
