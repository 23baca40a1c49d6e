package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// header of a JWT, which says by which key it is to be verified. Nothing else in it is trusted.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

func readHeader(token string) (header, error) {
	var h header
	encoded, rest, found := strings.Cut(token, ".")
	if !found || strings.Count(rest, ".") != 1 {
		return h, &InvalidToken{Reason: "the token is not a JWT: it does not have three parts"}
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || json.Unmarshal(text, &h) != nil {
		return h, &InvalidToken{Reason: "the token is not a JWT: its header cannot be decoded"}
	}
	return h, nil
}
