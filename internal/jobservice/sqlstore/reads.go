package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// reads are the queries that both databases answer alike.
type reads struct {
	// idColumn selects an ID as text.
	idColumn string
	// counts is the table of job counts.
	counts string
	// query returns rows and what closes them.
	query func(ctx context.Context, text string, arguments ...any) (rows, func(), error)
	// fail marks errors that mean that the database is unavailable.
	fail func(error) error
}

// row is one result of a query.
type row interface{ Scan(...any) error }

type rows interface {
	row
	Next() bool
	Err() error
}

// gather scans all results of a query.
func gather[T any](ctx context.Context, r reads, scan func(row) (T, error), text string, arguments ...any) ([]T, error) {
	found, end, err := r.query(ctx, text, arguments...)
	if err != nil {
		return nil, r.fail(err)
	}
	defer end()
	var all []T
	for found.Next() {
		one, err := scan(found)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, r.fail(found.Err())
}

func (r reads) Open(ctx context.Context, status jobs.Status, after string, limit int) ([]*Row, error) {
	if after == "" {
		after = "00000000-0000-0000-0000-000000000000"
	}
	return gather(ctx, r, scan, "SELECT "+r.idColumn+", "+columns+" FROM jobs WHERE status = $1 AND id > $2 ORDER BY jobs.id LIMIT $3",
		string(status), after, limit)
}

func (r reads) Undelivered(ctx context.Context, before time.Time, limit int) ([]Outbox, error) {
	return gather(ctx, r, func(row row) (o Outbox, err error) {
		var ids string
		err = row.Scan(&o.ID, &ids)
		o.Jobs = strings.Split(ids, ",")
		return o, err
	}, "SELECT "+r.idColumn+", jobs FROM outbox WHERE created_at < $1 ORDER BY created_at LIMIT $2", micros(before), limit)
}

func (r reads) Counts(ctx context.Context) ([]Count, error) {
	return gather(ctx, r, func(row row) (c Count, err error) {
		return c, row.Scan(&c.Queue, &c.Executor, &c.Status, &c.N)
	}, "SELECT queue, executor, status, CAST(sum(n) AS bigint) FROM "+r.counts+" GROUP BY 1, 2, 3 ORDER BY 1, 2, 3")
}

func (r reads) Figures(ctx context.Context, width int64, since time.Time) ([]Figure, error) {
	return gather(ctx, r, func(row row) (f Figure, err error) {
		return f, row.Scan(&f.Width, &f.Start, &f.Queue, &f.Kind, &f.Bucket, &f.N, &f.Total)
	}, "SELECT width, start, queue, kind, bucket, n, total FROM figures WHERE width = $1 AND start >= $2", width, since.Unix())
}
