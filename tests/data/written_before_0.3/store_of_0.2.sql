CREATE SCHEMA tacit;
CREATE FUNCTION tacit.check_seq() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
    BEGIN
        IF EXISTS (
            SELECT 1 FROM fresh WHERE
                EXISTS (SELECT 1 FROM decisions d WHERE d.seq = fresh.seq OFFSET 0)::integer
                + EXISTS (SELECT 1 FROM feedback f WHERE f.seq = fresh.seq OFFSET 0)::integer
                + EXISTS (SELECT 1 FROM marks m WHERE m.seq = fresh.seq OFFSET 0)::integer > 1
        ) THEN
            RAISE unique_violation USING MESSAGE = 'another row has this seq';
        END IF;
        RETURN NULL;
    END $$;
CREATE TABLE tacit.bases (
    placement integer NOT NULL,
    seq bigint NOT NULL,
    "time" bigint NOT NULL,
    plan text NOT NULL,
    pieces bigint DEFAULT 0 NOT NULL,
    checksum bytea
);
CREATE TABLE tacit.decisions (
    seq bigint NOT NULL,
    id text NOT NULL,
    placement integer NOT NULL,
    policy integer NOT NULL,
    "time" bigint NOT NULL,
    key text NOT NULL,
    offered text,
    arm text NOT NULL,
    propensity double precision,
    epoch bigint NOT NULL,
    context text,
    mode text NOT NULL,
    would text,
    would_propensity double precision,
    deferred smallint NOT NULL,
    asked text,
    shown text,
    control smallint,
    bucket smallint
);
CREATE TABLE tacit.feedback (
    seq bigint NOT NULL,
    placement integer NOT NULL,
    decision bigint NOT NULL,
    id text,
    "time" bigint NOT NULL,
    kind text NOT NULL,
    reward double precision,
    clicks text,
    metrics text,
    CONSTRAINT feedback_reward_check CHECK (((reward >= ('-1'::integer)::double precision) AND (reward <= (1)::double precision)))
);
CREATE TABLE tacit.marks (
    seq bigint NOT NULL,
    placement integer,
    "time" bigint NOT NULL,
    kind text NOT NULL,
    value text NOT NULL,
    who text
);
CREATE TABLE tacit.owner (
    epoch bigint NOT NULL
);
CREATE TABLE tacit.pieces (
    number bigint NOT NULL,
    snapshot bigint NOT NULL,
    field text NOT NULL,
    content bytea NOT NULL
);
ALTER TABLE tacit.pieces ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tacit.pieces_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tacit.placements (
    id integer NOT NULL,
    name text NOT NULL,
    policy integer NOT NULL,
    seed bigint NOT NULL,
    configuration text
);
ALTER TABLE tacit.placements ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tacit.placements_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tacit.policies (
    id integer NOT NULL,
    hash text NOT NULL,
    spec text NOT NULL,
    version text
);
ALTER TABLE tacit.policies ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tacit.policies_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tacit.records (
    number bigint NOT NULL,
    placement integer NOT NULL,
    kind text NOT NULL,
    id text NOT NULL,
    "time" bigint NOT NULL,
    content text NOT NULL
);
ALTER TABLE tacit.records ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME tacit.records_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE tacit.snapshots (
    placement integer NOT NULL,
    seq bigint NOT NULL,
    "time" bigint NOT NULL,
    plan text NOT NULL,
    pieces bigint DEFAULT 0 NOT NULL,
    checksum bytea
);
CREATE TABLE tacit.states (
    placement integer NOT NULL,
    seq bigint NOT NULL,
    "time" bigint NOT NULL,
    plan text NOT NULL,
    checksum bytea,
    pieces bigint NOT NULL
);
CREATE TABLE tacit.store (
    version integer NOT NULL,
    probed bigint NOT NULL
);
INSERT INTO tacit.owner VALUES (1);
INSERT INTO tacit.placements OVERRIDING SYSTEM VALUE VALUES (1, 'home', 1, 7, NULL);
INSERT INTO tacit.policies OVERRIDING SYSTEM VALUE VALUES (1, '67bbade62492c5a4034b4e258799c5e2a39fdc5badb896dfb2d2a0f0ef9c9762', '{"name": "Thompson", "arms": ["a", "b"], "prior_successes": 1.0, "prior_failures": 1.0, "discount": 1.0}', '0.2.0');
INSERT INTO tacit.store VALUES (8, 0);
SELECT pg_catalog.setval('tacit.pieces_number_seq', 1, false);
SELECT pg_catalog.setval('tacit.placements_id_seq', 1, true);
SELECT pg_catalog.setval('tacit.policies_id_seq', 1, true);
SELECT pg_catalog.setval('tacit.records_number_seq', 1, false);
ALTER TABLE ONLY tacit.bases
    ADD CONSTRAINT bases_pkey PRIMARY KEY (placement);
ALTER TABLE ONLY tacit.decisions
    ADD CONSTRAINT decisions_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY tacit.feedback
    ADD CONSTRAINT feedback_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY tacit.marks
    ADD CONSTRAINT marks_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY tacit.pieces
    ADD CONSTRAINT pieces_pkey PRIMARY KEY (number);
ALTER TABLE ONLY tacit.placements
    ADD CONSTRAINT placements_name_key UNIQUE (name);
ALTER TABLE ONLY tacit.placements
    ADD CONSTRAINT placements_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tacit.policies
    ADD CONSTRAINT policies_hash_key UNIQUE (hash);
ALTER TABLE ONLY tacit.policies
    ADD CONSTRAINT policies_pkey PRIMARY KEY (id);
ALTER TABLE ONLY tacit.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (number);
ALTER TABLE ONLY tacit.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (placement);
ALTER TABLE ONLY tacit.states
    ADD CONSTRAINT states_pkey PRIMARY KEY (placement, seq);
CREATE UNIQUE INDEX decision_ids ON tacit.decisions USING btree (id, placement);
CREATE INDEX feedback_of ON tacit.feedback USING btree (decision);
CREATE UNIQUE INDEX feedback_once ON tacit.feedback USING btree (decision, id) WHERE (id IS NOT NULL);
CREATE INDEX marks_of ON tacit.marks USING btree (placement, seq) WHERE (placement IS NOT NULL);
CREATE INDEX pieces_of ON tacit.pieces USING btree (snapshot);
CREATE UNIQUE INDEX record_ids ON tacit.records USING btree (id, placement, kind);
CREATE TRIGGER decisions_seq AFTER INSERT ON tacit.decisions REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tacit.check_seq();
CREATE TRIGGER feedback_seq AFTER INSERT ON tacit.feedback REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tacit.check_seq();
CREATE TRIGGER marks_seq AFTER INSERT ON tacit.marks REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tacit.check_seq();
ALTER TABLE ONLY tacit.bases
    ADD CONSTRAINT bases_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
ALTER TABLE ONLY tacit.decisions
    ADD CONSTRAINT decisions_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
ALTER TABLE ONLY tacit.decisions
    ADD CONSTRAINT decisions_policy_fkey FOREIGN KEY (policy) REFERENCES tacit.policies(id);
ALTER TABLE ONLY tacit.feedback
    ADD CONSTRAINT feedback_decision_fkey FOREIGN KEY (decision) REFERENCES tacit.decisions(seq);
ALTER TABLE ONLY tacit.feedback
    ADD CONSTRAINT feedback_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
ALTER TABLE ONLY tacit.marks
    ADD CONSTRAINT marks_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
ALTER TABLE ONLY tacit.placements
    ADD CONSTRAINT placements_policy_fkey FOREIGN KEY (policy) REFERENCES tacit.policies(id);
ALTER TABLE ONLY tacit.records
    ADD CONSTRAINT records_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
ALTER TABLE ONLY tacit.snapshots
    ADD CONSTRAINT snapshots_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
ALTER TABLE ONLY tacit.states
    ADD CONSTRAINT states_placement_fkey FOREIGN KEY (placement) REFERENCES tacit.placements(id);
