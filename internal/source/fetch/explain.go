package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/content/unpack"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// problem makes a problem of the user. Its text begins with the field.
func problem(reason string, format string, arguments ...any) error {
	return &source.Problem{Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}

// passing is a problem that another try may not have.
type passing struct{ problem *source.Problem }

func (p *passing) Error() string { return p.problem.Message }

func (p *passing) Unwrap() error { return p.problem }

// server is who is asked, in messages.
type server struct {
	// source is the field of the source, such as spec.source.git, and address the one in it that names the server.
	source, address string
	// host that is asked, and what is asked for there.
	host, what string
	// secret is the name of the Secret; empty for none.
	secret string
}

func (s server) field() string { return s.source + "." + s.address }

// denied: the credentials are refused, or there are none.
func (s server) denied() error {
	if s.secret == "" {
		return problem(reasons.SourceAccessDenied, "%s: %s needs credentials, or has no such %s: name a Secret in %s.secretRef, or correct the %s",
			s.field(), s.host, s.what, s.source, s.address)
	}
	return problem(reasons.SourceAccessDenied, "%s: %s refuses access: correct the Secret %s of %s.secretRef, or what its user may read",
		s.field(), s.host, s.secret, s.source)
}

// notFound: there is none, or, as many servers do not tell, there is no access to it.
func (s server) notFound() error {
	remedy := ""
	if s.secret == "" {
		remedy = ", or, where it is private, name a Secret in " + s.source + ".secretRef"
	}
	return problem(reasons.SourceNotFound, "%s: %s has no such %s: correct the %s%s", s.field(), s.host, s.what, s.address, remedy)
}

// status explains the status of an answer.
func (s server) status(code int) error {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return s.denied()
	case code == http.StatusNotFound, code == http.StatusGone:
		return s.notFound()
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= http.StatusInternalServerError:
		return s.passing("cannot serve at the moment: status %d", code)
	}
	return problem(reasons.SourceUnreachable, "%s: %s answers with status %d: correct the %s", s.field(), s.host, code, s.address)
}

// passing is a problem of the server that another try may not have.
func (s server) passing(format string, arguments ...any) error {
	return &passing{&source.Problem{Reason: reasons.SourceUnreachable, Message: fmt.Sprintf("%s: %s %s", s.field(), s.host, fmt.Sprintf(format, arguments...))}}
}

// explain puts an error into words. One of the local disk stays as it is.
func (s server) explain(err error) error {
	if known := ownProblem(s.source, err); known != nil {
		return known
	}
	if answer, ok := errors.AsType[*badStatus](err); ok {
		return s.status(answer.code)
	}
	if untrusted, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return problem(reasons.SourceUnreachable, "%s: %s has a certificate that is not trusted (%v): "+
			"put the authority that signed it into the Secret of %s.secretRef as %s",
			s.field(), s.host, untrusted.Err, s.source, keyCA)
	}
	var dns *net.DNSError
	var op *net.OpError
	var address *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return s.passing("does not answer in time: check the network, and whether network policies let the job's pods reach it")
	case errors.As(err, &dns):
		return s.passing("cannot be reached: the name %s cannot be resolved: correct the %s, or check the DNS of the cluster", dns.Name, s.address)
	case errors.As(err, &op):
		return s.passing("cannot be reached (%s: %v): check the %s, and whether network policies let the job's pods reach it", op.Op, op.Err, s.address)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, net.ErrClosed):
		return s.passing("ends the connection before all has come")
	case errors.As(err, &address):
		return s.passing("does not answer as it should: %s", plain(address.Err))
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	return s.passing("does not answer as it should: %s", plain(err))
}

// ownProblem is what an error has from this package or from unpacking; nil when that is nothing.
func ownProblem(field string, err error) error {
	if passes, ok := errors.AsType[*passing](err); ok {
		return passes
	}
	if known, ok := errors.AsType[*source.Problem](err); ok {
		return known
	}
	if invalid, ok := errors.AsType[*unpack.InvalidError](err); ok {
		return problem(reasons.SourceInvalid, "%s: %s", field, invalid.Message)
	}
	if isFull(err) {
		return explainVolume(err)
	}
	return nil
}

// explainVolume explains that the disk is full, and returns all other errors as they are.
func explainVolume(err error) error {
	if isFull(err) {
		return problem(reasons.SourceVolumeFull, "spec.source: there is no space left on the node for the code: free some, or raise the limit of ephemeral storage")
	}
	return err
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// plain is the text of an error of a library, on one line and not too long.
func plain(err error) string {
	const most = 300
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
