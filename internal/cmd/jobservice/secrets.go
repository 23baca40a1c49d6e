package jobservice

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// secretFlag is a value that had better not be seen by who lists the processes: it can come from a file or from the environment.
type secretFlag struct {
	name, variable string
	value, file    string
}

func (s *secretFlag) add(flags *pflag.FlagSet, name, variable, usage string) {
	s.name, s.variable = name, variable
	flags.StringVar(&s.value, name, "", usage+" (environment: "+variable+")")
	flags.StringVar(&s.file, name+"-file", "", "file that has --"+name)
}

// given says whether there is a value.
func (s *secretFlag) given() bool {
	return s.value != "" || s.file != "" || os.Getenv(s.variable) != ""
}

// read returns the value; empty: there is none.
func (s *secretFlag) read() (string, error) {
	switch {
	case s.value != "" && s.file != "":
		return "", fmt.Errorf("--%s, --%s-file: both are set: keep one of them", s.name, s.name)
	case s.value != "":
		return s.value, nil
	case s.file == "":
		return os.Getenv(s.variable), nil
	}
	text, err := readSecret(s.file)
	if err != nil {
		return "", fmt.Errorf("--%s-file: %w", s.name, err)
	}
	return text, nil
}

func readSecret(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return "", fmt.Errorf("%s is empty: write the value into it", file)
	}
	return trimmed, nil
}

// hmacVariable has a secret that tokens are signed with.
const hmacVariable = "JOB_SERVICE_HMAC_SECRET"

// hmacFlags are the secrets that tokens may be signed with. They are in files or in the environment only.
type hmacFlags struct{ files []string }

func (h *hmacFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&h.files, "hmac-secret-file", nil,
		"file of a secret that tokens are signed with by HMAC, at least 32 bytes; several while one takes the place of another (environment: "+
			hmacVariable+", the secret itself)")
}

func (h *hmacFlags) given() bool { return len(h.files) > 0 || os.Getenv(hmacVariable) != "" }

// read returns all secrets.
func (h *hmacFlags) read() ([][]byte, error) {
	var secrets [][]byte
	if value := os.Getenv(hmacVariable); value != "" {
		secrets = append(secrets, []byte(value))
	}
	for _, file := range h.files {
		text, err := readSecret(file)
		if err != nil {
			return nil, fmt.Errorf("--hmac-secret-file: %w", err)
		}
		secrets = append(secrets, []byte(text))
	}
	return secrets, nil
}
