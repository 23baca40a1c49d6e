package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// Keys of the Secret with the credentials.
const (
	keyAccessKeyID     = "AWS_ACCESS_KEY_ID"
	keySecretAccessKey = "AWS_SECRET_ACCESS_KEY" //nolint:gosec // the name of a key in a Secret
	keySessionToken    = "AWS_SESSION_TOKEN"     //nolint:gosec // the name of a key in a Secret
	keyGoogle          = "key.json"
	keyAzureKey        = "AZURE_STORAGE_KEY"
	keyAzureSAS        = "AZURE_STORAGE_SAS_TOKEN"
)

// credentials are the values of the keys, by name.
type credentials map[string]string

// readCredentials reads the files of a mounted Secret; those of an optional Secret that does not exist are none.
func readCredentials(folder string) (credentials, error) {
	c := credentials{}
	for _, key := range []string{keyAccessKeyID, keySecretAccessKey, keySessionToken, keyGoogle, keyAzureKey, keyAzureSAS} {
		text, err := os.ReadFile(filepath.Join(folder, key))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the credentials: %w", err)
		}
		if value := strings.TrimSpace(string(text)); value != "" {
			c[key] = value
		}
	}
	return c, nil
}

// redact takes the values out of a text, in case a provider repeats one.
func (c credentials) redact(text string) string {
	for key, value := range c {
		if len(value) >= 4 && key != keyAccessKeyID {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return text
}

// missing says which of the keys that a store needs are not there.
func (c credentials) missing(l Location) error {
	needed := map[string][]string{schemeS3: {keyAccessKeyID, keySecretAccessKey}, schemeGCS: {keyGoogle}}[l.Scheme]
	lacking := slices.DeleteFunc(needed, func(key string) bool { return c[key] != "" })
	if l.Scheme == schemeAzure && c[keyAzureKey] == "" && c[keyAzureSAS] == "" {
		lacking = []string{keyAzureKey + " or " + keyAzureSAS}
	}
	if len(lacking) == 0 {
		return nil
	}
	return report.NewProblem(report.ReasonCredentialsMissing,
		"there are no credentials for %s: create the Secret that secretRef names with the key %s", l.at(), strings.Join(lacking, " and "))
}
