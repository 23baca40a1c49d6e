package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Month is the least retention by which history is deleted by whole months alone: nothing is kept for much more than twice as long as was asked.
const Month = 30 * 24 * time.Hour

// Months is what KeepMonths did, by the names of the tables.
type Months struct{ Created, Dropped []string }

// history is a table that is partitioned by month. Its key is a UUID of version 7, which begins with the time: an ID says in which month it is.
type history struct {
	table, storage string
	// keeps is the condition of rows that a month must not be dropped with, beside those that ended at a time, $1, or later.
	keeps string
	// uncount are statements on the rows of a month that go with it.
	uncount string
}

var histories = []history{
	{
		table:   "jobs",
		storage: " WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05)",
		keeps:   open + " OR completed_at >= $1",
		uncount: `INSERT INTO job_count_changes
  SELECT namespace, queue, type, executor, status, priority, -count(*) FROM %s GROUP BY 1, 2, 3, 4, 5, 6`,
	},
	{table: "audit", keeps: "time >= $1"},
}

const (
	// lockWait is how long a change of the tables waits for the transactions before it, while those after it wait for it.
	lockWait = "500ms"
	// monthsAhead are made before they begin, so that a service that is away for a while, or older than partitions, finds them.
	monthsAhead = 2
	// leastAhead is how far off the end of the first partition is: until then it is made, and clocks may differ.
	leastAhead = 48 * time.Hour
)

// KeepMonths partitions the tables of jobs and of the audit log by month, makes the next months, and drops those where everything ended before
// the retention began; 0: none. Jobs are taken, leased and ended meanwhile. One replica does it at a time.
func (p *postgres) KeepMonths(ctx context.Context, now time.Time, retention, auditRetention time.Duration) (done Months, err error) {
	held, unlock, err := p.lockAs(ctx, lockMonths)
	if errors.Is(err, ErrLocked) {
		return done, nil
	}
	if err != nil {
		return done, err
	}
	defer unlock()
	for i, keep := range []time.Duration{retention, auditRetention} {
		m := months{postgres: p, history: histories[i], done: &done}
		err = errors.Join(err, m.keep(held, now, keep))
	}
	return done, err
}

type months struct {
	*postgres
	history
	done *Months
}

func (m *months) keep(ctx context.Context, now time.Time, retention time.Duration) error {
	var kind string
	if err := m.pool.QueryRow(ctx, "SELECT relkind::text FROM pg_class WHERE oid = to_regclass($1)", m.table).Scan(&kind); err != nil {
		return unavailable(err)
	}
	if kind == "r" {
		if err := m.split(ctx, now); err != nil {
			return fmt.Errorf("partition the table %s: %w", m.table, err)
		}
	}
	if err := m.make(ctx, now); err != nil {
		return fmt.Errorf("make the next months of %s: %w", m.table, err)
	}
	if retention <= 0 {
		return nil
	}
	if err := m.drop(ctx, now.Add(-retention)); err != nil {
		return fmt.Errorf("drop old months of %s: %w", m.table, err)
	}
	return nil
}

// split makes the table, as it is, the first partition of one of the same name.
func (m *months) split(ctx context.Context, now time.Time) error {
	end := monthOf(now, 1)
	if end.Sub(now) < leastAhead {
		end = monthOf(now, 2)
	}
	// Checked rows need no look when the table becomes a partition, which stops everything else.
	constraint := m.table + "_first_month"
	err := m.briefly(ctx, fmt.Sprintf("ALTER TABLE %[1]s DROP CONSTRAINT IF EXISTS %[2]s, ADD CONSTRAINT %[2]s CHECK (id < '%[3]s') NOT VALID",
		m.table, constraint, firstID(end)))
	if err != nil {
		return err
	}
	if _, err := m.pool.Exec(ctx, fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s", m.table, constraint)); err != nil {
		return unavailable(err)
	}
	triggers, err := m.triggers(ctx)
	if err != nil {
		return err
	}
	first := m.table + "_before_" + end.Format("2006_01")
	statements := []string{
		fmt.Sprintf("ALTER TABLE %s RENAME TO %s", m.table, first),
		fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY RANGE (id)", m.table, first),
		fmt.Sprintf(copyGrants, first, m.table),
	}
	for _, trigger := range triggers {
		statements = append(statements, fmt.Sprintf("DROP TRIGGER %s ON %s", trigger.name, first), trigger.definition)
	}
	statements = append(statements,
		fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (MINVALUE) TO ('%s')", m.table, first, firstID(end)),
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", first, constraint),
		// For IDs of a month that was not made in time.
		fmt.Sprintf("CREATE TABLE %s_other PARTITION OF %s DEFAULT%s", m.table, m.table, m.storage))
	if err := m.briefly(ctx, strings.Join(statements, ";\n")); err != nil {
		return err
	}
	m.done.Created = append(m.done.Created, first)
	return nil
}

// trigger of the table, with the statement that makes it.
type trigger struct{ name, definition string }

func (m *months) triggers(ctx context.Context) ([]trigger, error) {
	found, err := m.pool.Query(ctx, "SELECT quote_ident(tgname), pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal", m.table)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (t trigger, err error) {
		err = row.Scan(&t.name, &t.definition)
		return t, err
	})
	return all, unavailable(err)
}

// copyGrants gives those who may use one table the same rights to another.
const copyGrants = `DO $$ DECLARE given record; BEGIN
  FOR given IN SELECT privilege_type AS what, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS whom
    FROM pg_class, aclexplode(relacl) WHERE oid = '%s'::regclass AND grantee <> relowner
  LOOP EXECUTE format('GRANT %%s ON %s TO %%s', given.what, given.whom); END LOOP;
END $$`

// monthOf is the begin of a month, counted from that of a time.
func monthOf(t time.Time, months int) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month()+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
}

// partition of a table, with the time before which its IDs were made; zero: any time.
type partition struct {
	name string
	end  time.Time
}

func (m *months) partitions(ctx context.Context) ([]partition, error) {
	found, err := m.pool.Query(ctx, `SELECT inhrelid::regclass::text, coalesce(substring(pg_get_expr(relpartbound, inhrelid) FROM $$TO \('(.*)'\)$$), '')
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = to_regclass($1) ORDER BY 2`, m.table)
	if err != nil {
		return nil, unavailable(err)
	}
	all, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (p partition, err error) {
		var end string
		if err := row.Scan(&p.name, &end); err != nil || end == "" {
			return p, err
		}
		id, err := uuid.Parse(end)
		seconds, nanoseconds := id.Time().UnixTime()
		p.end = time.Unix(seconds, nanoseconds).UTC()
		return p, err
	})
	return all, unavailable(err)
}

func (m *months) make(ctx context.Context, now time.Time) error {
	all, err := m.partitions(ctx)
	if err != nil {
		return err
	}
	begin := monthOf(now, 0)
	for _, one := range all {
		if one.end.After(begin) {
			begin = one.end
		}
	}
	for last := monthOf(now, monthsAhead); begin.Before(last); begin = monthOf(begin, 1) {
		name := m.table + "_" + begin.Format("2006_01")
		err := m.briefly(ctx, fmt.Sprintf("CREATE TABLE %s PARTITION OF %s FOR VALUES FROM ('%s') TO ('%s')%s",
			name, m.table, firstID(begin), firstID(monthOf(begin, 1)), m.storage))
		if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.Code == "23514" {
			continue // rows of this month are in the partition for others, and stay there
		}
		if err != nil {
			return err
		}
		m.done.Created = append(m.done.Created, name)
	}
	return nil
}

// drop drops the partitions all of whose rows are older than a time.
func (m *months) drop(ctx context.Context, before time.Time) error {
	all, err := m.partitions(ctx)
	if err != nil {
		return err
	}
	for _, one := range all {
		if one.end.IsZero() || one.end.After(before) {
			continue
		}
		var keeps bool
		err := m.pool.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE %s)", one.name, m.keeps), micros(before)).Scan(&keeps)
		if err != nil {
			return unavailable(err)
		}
		if keeps {
			continue
		}
		if err := m.briefly(ctx, fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s", m.table, one.name)); err != nil {
			return err
		}
	}
	return m.discard(ctx, before)
}

// discard deletes detached partitions, those too that one who was stopped left. Nothing else uses them, so that it can take its time. What was
// begun again just before goes back into the table.
func (m *months) discard(ctx context.Context, before time.Time) error {
	found, err := m.pool.Query(ctx, `SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname ~ ('^' || $1::text || '_(before_)?\d{4}_\d{2}$')
AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass($1::text)) AND NOT relispartition ORDER BY 1`, m.table)
	if err != nil {
		return unavailable(err)
	}
	names, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		return unavailable(err)
	}
	for _, name := range names {
		err := pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			if m.uncount != "" {
				batch.Queue(fmt.Sprintf(m.uncount, name))
			}
			batch.Queue(fmt.Sprintf("INSERT INTO %s SELECT * FROM %s WHERE %s", m.table, name, m.keeps), micros(before))
			batch.Queue("DROP TABLE " + name)
			return tx.SendBatch(ctx, batch).Close()
		})
		if err != nil {
			return unavailable(err)
		}
		m.done.Dropped = append(m.done.Dropped, name)
	}
	return nil
}

// briefly runs statements in one transaction. It gives up soon when it has to wait, and tries again, so that those who come after it never wait for long.
func (m *months) briefly(ctx context.Context, statements string) error {
	var last error
	try := func(ctx context.Context) (bool, error) {
		_, err := m.pool.Exec(ctx, "SET LOCAL lock_timeout = '"+lockWait+"'; "+statements)
		last = unavailable(err)
		if answer, ok := errors.AsType[*pgconn.PgError](err); ok && (answer.Code == "55P03" || answer.Code == "40P01") { // the lock, or a deadlock
			return false, nil
		}
		return true, last
	}
	if err := wait.PollUntilContextTimeout(ctx, 2*time.Second, time.Minute, true, try); err != nil {
		return cmp.Or(last, unavailable(err))
	}
	return nil
}

// Prune leaves what is dropped with its month, and deletes what is left of months that were not dropped.
func (p *postgres) Prune(ctx context.Context, endedBefore time.Time, limit int) (int, error) {
	return p.prune(ctx, createdBefore(endedBefore), endedBefore, limit)
}

func (p *postgres) PruneAudit(ctx context.Context, before time.Time, limit int) (int, error) {
	return p.database.PruneAudit(ctx, createdBefore(before), limit)
}

// createdBefore is up to when what is deleted row by row was made.
func createdBefore(before time.Time) time.Time {
	if time.Since(before) < Month {
		return before
	}
	return monthOf(before, 0)
}
