-- Times are microseconds since 1970, 0: not yet.
CREATE TABLE jobs (
  id            uuid     PRIMARY KEY, -- of version 7: they grow with the time of creation
  namespace     text     NOT NULL,
  queue         text     NOT NULL,
  type          text     NOT NULL,
  executor      text     NOT NULL,
  priority      smallint NOT NULL,
  submitter     text     NOT NULL,
  spec          json     NOT NULL, -- image, config, resources, gang, timeout, retries
  status        text     NOT NULL DEFAULT 'queued',
  created_at    bigint   NOT NULL,
  queued_at     bigint   NOT NULL,
  started_at    bigint   NOT NULL DEFAULT 0,
  completed_at  bigint   NOT NULL DEFAULT 0,
  next_retry_at bigint   NOT NULL DEFAULT 0,
  retry_count   integer  NOT NULL DEFAULT 0,
  worker_id     text     NOT NULL DEFAULT '',
  fence         bigint   NOT NULL DEFAULT 0, -- of the newest lease
  lease_id      bigint   NOT NULL DEFAULT 0, -- of the grant that holds; 0: nobody has the job
  settled       bigint   NOT NULL DEFAULT 0, -- the newest fence under which a worker said how it ended
  result        text     NOT NULL DEFAULT '',
  error         text     NOT NULL DEFAULT ''
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX jobs_namespace ON jobs (namespace, id);
CREATE INDEX jobs_queue ON jobs (queue, id);
CREATE INDEX jobs_status ON jobs (status, id);
CREATE INDEX jobs_waiting ON jobs (queue, queued_at) WHERE status IN ('queued', 'retrying');

-- What Redis must learn of: written with the jobs in one transaction, deleted after Redis has it.
CREATE TABLE outbox (
  id         uuid   PRIMARY KEY,
  created_at bigint NOT NULL,
  jobs       text   NOT NULL -- their IDs, with commas between
);

-- One row: the life of the data in Redis that holds.
CREATE TABLE epoch (single boolean PRIMARY KEY DEFAULT true CHECK (single), id text NOT NULL);
INSERT INTO epoch (id) VALUES ('');

CREATE TABLE audit (
  id         uuid    PRIMARY KEY,
  time       bigint  NOT NULL,
  username   text    NOT NULL,
  action     text    NOT NULL,
  namespace  text    NOT NULL,
  job_id     text    NOT NULL,
  request_id text    NOT NULL,
  status     integer NOT NULL,
  message    text    NOT NULL
);

-- How many jobs there are of each sort. Each statement adds its changes as rows of their own, so that no transaction waits for
-- another; they are summed up now and then.
CREATE TABLE job_counts (
  namespace text NOT NULL, queue text NOT NULL, type text NOT NULL, executor text NOT NULL, status text NOT NULL,
  priority smallint NOT NULL, n bigint NOT NULL,
  PRIMARY KEY (namespace, queue, type, executor, status, priority)
);
CREATE TABLE job_count_changes (
  namespace text NOT NULL, queue text NOT NULL, type text NOT NULL, executor text NOT NULL, status text NOT NULL,
  priority smallint NOT NULL, n bigint NOT NULL
);
CREATE FUNCTION count_new_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO job_count_changes
    SELECT namespace, queue, type, executor, status, priority, count(*) FROM new_jobs GROUP BY 1, 2, 3, 4, 5, 6;
  RETURN NULL;
END $$;
CREATE FUNCTION count_changed_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO job_count_changes
    SELECT namespace, queue, type, executor, status, priority, sum(n) FROM (
      SELECT namespace, queue, type, executor, status, priority, -1 AS n FROM old_jobs
      UNION ALL
      SELECT namespace, queue, type, executor, status, priority, 1 FROM new_jobs
    ) changes GROUP BY 1, 2, 3, 4, 5, 6 HAVING sum(n) <> 0;
  RETURN NULL;
END $$;
CREATE FUNCTION count_old_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO job_count_changes
    SELECT namespace, queue, type, executor, status, priority, -count(*) FROM old_jobs GROUP BY 1, 2, 3, 4, 5, 6;
  RETURN NULL;
END $$;
CREATE TRIGGER count_inserts AFTER INSERT ON jobs REFERENCING NEW TABLE AS new_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION count_new_jobs();
CREATE TRIGGER count_updates AFTER UPDATE ON jobs REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION count_changed_jobs();
CREATE TRIGGER count_deletes AFTER DELETE ON jobs REFERENCING OLD TABLE AS old_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION count_old_jobs();

-- Figures of time spans: how many jobs were submitted, ended and so on, and histograms of how long they took.
CREATE TABLE figures (
  width  integer NOT NULL, -- of the span, in seconds
  start  bigint  NOT NULL, -- of the span, in seconds since 1970
  queue  text    NOT NULL,
  kind   text    NOT NULL,
  bucket integer NOT NULL,
  n      bigint  NOT NULL,
  total  bigint  NOT NULL, -- microseconds
  PRIMARY KEY (width, start, queue, kind, bucket)
);
