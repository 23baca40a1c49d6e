package checkpointagent

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/sidecar"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/volume"
)

// Environment variables.
const (
	envDirectory         = "CHECKPOINT_DIR"
	envReplica           = "REPLICA_INDEX"
	envStore             = "CHECKPOINT_STORE"
	envCredentials       = "CHECKPOINT_CREDENTIALS"
	envRetention         = "CHECKPOINT_RETENTION"
	envAttempt           = "CHECKPOINT_ATTEMPT" // the number of the job's start, which grows with restarts and resumptions
	envResume            = "RESUME_FROM"
	envResumeCredentials = "RESUME_CREDENTIALS" //nolint:gosec // the name of a variable
	envResumeOptional    = "RESUME_OPTIONAL"
	envPort              = "AGENT_PORT"
	envTermination       = "TERMINATION_MESSAGE_PATH"
)

const terminationPath = "/dev/termination-log"

// fromEnvironment reads the settings. Its errors name the variable.
func fromEnvironment(env func(string) string) (sidecar.Settings, error) {
	s := sidecar.Settings{TerminationPath: cmp.Or(env(envTermination), terminationPath)}
	if env(envReplica) == "" {
		return s, fmt.Errorf("%s: is not set: it must be the number of the replica, from 0", envReplica)
	}
	s.Directory = volume.Directory{Path: filepath.Clean(env(envDirectory))}
	if !filepath.IsAbs(env(envDirectory)) {
		return s, fmt.Errorf("%s: %q is no absolute path: name the directory of the job's checkpoints", envDirectory, env(envDirectory))
	}
	var port int
	var err error
	for name, into := range map[string]*int{envRetention: &s.Retention, envAttempt: &s.Attempt, envPort: &port} {
		if *into, err = strconv.Atoi(cmp.Or(env(name), "0")); err != nil || *into < 0 {
			return s, fmt.Errorf("%s: %q is no number from 0", name, env(name))
		}
	}
	s.Address = ":" + strconv.Itoa(cmp.Or(port, report.Port))
	if url := env(envStore); url != "" {
		if s.Store, err = store.New(url, env(envCredentials)); err != nil {
			return s, fmt.Errorf("%s: %w", envStore, err)
		}
	}
	err = resume(&s, env)
	return s, err
}

func resume(s *sidecar.Settings, env func(string) string) (err error) {
	s.ResumeOptional = env(envResumeOptional) == "true"
	switch from := env(envResume); {
	case from == "":
	case store.IsURL(from):
		if s.ResumeStore, err = store.New(from, env(envResumeCredentials)); err != nil {
			return fmt.Errorf("%s: %w", envResume, err)
		}
	case !filepath.IsAbs(from):
		return fmt.Errorf("%s: %q is neither an absolute path nor a URL", envResume, from)
	default:
		s.ResumePath = from
	}
	return nil
}
