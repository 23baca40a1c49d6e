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
	type item struct {
		Message string `json:"message"`
		Domain  string `json:"domain"`
		Reason  string `json:"reason"`
	}
	var body struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Errors  []item `json:"errors"`
		} `json:"error"`
	}
	domain := "global"
	if r.reason == "rateLimitExceeded" || r.reason == "quotaExceeded" {
		domain = "usageLimits"
	}
	body.Error.Code, body.Error.Message = r.status, r.message
	body.Error.Errors = []item{{Message: r.message, Domain: domain, Reason: r.reason}}
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(body)
}
