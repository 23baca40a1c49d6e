package fakegce

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// refusal is an answer other than 200.
type refusal struct {
	status          int
	reason, message string
	retryAfter      time.Duration
}

func refuse(status int, reason, format string, args ...any) *refusal {
	return &refusal{status: status, reason: reason, message: fmt.Sprintf(format, args...)}
}

// write answers in the form that Google gives errors.
func (r *refusal) write(w http.ResponseWriter) {
	domain := "global"
	if r.reason == "rateLimitExceeded" || r.reason == "quotaExceeded" {
		domain = "usageLimits"
	}
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
	}
	writeJSON(w, r.status, map[string]any{"error": map[string]any{
		"code": r.status, "message": r.message,
		"errors": []map[string]string{{"message": r.message, "domain": domain, "reason": r.reason}},
	}})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
