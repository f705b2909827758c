package main

import (
	"bytes"
	"encoding/json"
)

// The types of this file are the few parts of Grafana's JSON that the dashboard needs.
type (
	grafana struct {
		Title         string     `json:"title"`
		UID           string     `json:"uid"`
		Description   string     `json:"description"`
		SchemaVersion int        `json:"schemaVersion"`
		Editable      bool       `json:"editable"`
		Refresh       string     `json:"refresh"`
		Tags          []string   `json:"tags"`
		Time          timeRange  `json:"time"`
		Templating    templating `json:"templating"`
		Panels        []panel    `json:"panels"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string      `json:"name"`
		Label      string      `json:"label"`
		Type       string      `json:"type"`
		Query      string      `json:"query"`
		Datasource *datasource `json:"datasource,omitempty"`
		IncludeAll bool        `json:"includeAll,omitempty"`
		Multi      bool        `json:"multi,omitempty"`
		AllValue   string      `json:"allValue,omitempty"`
		Refresh    int         `json:"refresh,omitempty"`
	}
	datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	panel struct {
		ID          int         `json:"id"`
		Title       string      `json:"title"`
		Description string      `json:"description,omitempty"`
		Type        string      `json:"type"`
		Datasource  *datasource `json:"datasource,omitempty"`
		GridPos     gridPos     `json:"gridPos"`
		FieldConfig fieldConfig `json:"fieldConfig"`
		Targets     []target    `json:"targets,omitempty"`
	}
	gridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	fieldConfig struct {
		Defaults  fieldDefaults `json:"defaults"`
		Overrides []struct{}    `json:"overrides"`
	}
	fieldDefaults struct {
		Unit       string     `json:"unit,omitempty"`
		Min        *int       `json:"min,omitempty"`
		Thresholds *threshold `json:"thresholds,omitempty"`
	}
	threshold struct {
		Mode  string `json:"mode"`
		Steps []step `json:"steps"`
	}
	step struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"`
	}
	target struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	}
)

// chart is one panel: a title, a unit of Grafana, what a reader needs to know, and expressions with their legends.
type chart struct {
	title, unit, description string
	red                      float64 // a stat with this threshold; 0: a time series
	queries                  [][2]string
}

// row is a line of the dashboard.
type row struct {
	title  string
	charts []chart
}

const byConsumer = `{consumer=~"$consumer"}`

var dashboardRows = []row{
	{"Overview", []chart{
		{"Oldest unpublished message", "s", "How long the oldest message of the outbox has been due.", 60, [][2]string{
			{`max(txonce_outbox_oldest_age_seconds)`, "age"},
		}},
		{"Dead letters", "short", "They wait for a person.", 1, [][2]string{{`sum(max by (consumer, cause) (txonce_dead_letters` + byConsumer + `)) or 0 * max(txonce_sweep_lag_seconds)`, "letters"}}},
		{
			"Paused", "short", "Consumers, relays and subscribers that make no progress.", 1,
			[][2]string{{`count(max by (consumer, relay, source) (txonce_paused) == 1) or vector(0)`, "paused"}},
		},
		{
			"Since the last sweep", "s", "Expired keys wait for longer if no sweeper runs.", 86400,
			[][2]string{{`min(txonce_sweep_lag_seconds)`, "lag"}},
		},
	}},
	{"Consumers", []chart{
		{"Messages by outcome", "ops", "", 0, [][2]string{
			{
				`sum by (consumer, outcome) (rate(txonce_deliveries_total` + byConsumer + `[$__rate_interval]))`,
				"{{consumer}} {{outcome}}",
			},
		}},
		{
			"Duplicates", "percentunit", "The share of messages that were processed before.", 0,
			[][2]string{{duplicateRatio + byConsumer, "{{job}} {{consumer}}"}},
		},
		{"Failures by cause", "ops", "Messages that were parked, rejected, retried or held.", 0, [][2]string{
			{`sum by (consumer, outcome, cause) (rate(txonce_deliveries_total{consumer=~"$consumer",cause!=""}[$__rate_interval])) > 0`, "{{consumer}} {{outcome}} {{cause}}"},
		}},
		{"Duration of a pass", "s", "A pass is one message, or one batch.", 0, [][2]string{
			{`histogram_quantile(0.5, sum by (messaging_consumer_group_name, le) (rate(messaging_process_duration_seconds_bucket[$__rate_interval])))`, "{{messaging_consumer_group_name}} p50"},
			{`histogram_quantile(0.99, sum by (messaging_consumer_group_name, le) (rate(messaging_process_duration_seconds_bucket[$__rate_interval])))`, "{{messaging_consumer_group_name}} p99"},
		}},
		{"Duration of transactions", "s", "", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (consumer, result, le) (rate(txonce_transaction_duration_seconds_bucket` +
				byConsumer + `[$__rate_interval])))`, "{{consumer}} {{result}} p99"},
		}},
		{"Wait for claims", "s", "It ends at ClaimTimeout. A long wait means that another transaction holds the key.", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (consumer, verdict, le) (rate(txonce_claim_duration_seconds_bucket` +
				byConsumer + `[$__rate_interval])))`, "{{consumer}} {{verdict}} p99"},
		}},
		{"Transactions by result", "ops", "", 0, [][2]string{
			{
				`sum by (consumer, result) (rate(txonce_attempts_total` + byConsumer + `[$__rate_interval]))`,
				"{{consumer}} {{result}}",
			},
		}},
		{"Messages in progress", "short", "", 0, [][2]string{
			{`sum by (consumer) (txonce_in_flight` + byConsumer + `)`, "{{consumer}}"},
			{`max by (consumer) (txonce_keys_stuck` + byConsumer + `)`, "{{consumer}} stuck keys"},
		}},
		{
			"Pauses", "short", "1 while something makes no progress.", 0,
			[][2]string{{`max by (consumer, relay, source, cause) (txonce_paused)`, "{{consumer}}{{relay}}{{source}} {{cause}}"}},
		},
	}},
	{"Outbox", []chart{
		{"Pending and parked", "short", "", 0, [][2]string{
			{`max by (topic) (txonce_outbox_pending)`, "{{topic}} pending"},
			{`max by (topic) (txonce_outbox_parked)`, "{{topic}} parked"},
		}},
		{"From COMMIT to confirmation", "s", "", 0, [][2]string{
			{`histogram_quantile(0.5, sum by (topic, le) (rate(txonce_outbox_confirm_delay_seconds_bucket[$__rate_interval])))`, "{{topic}} p50"},
			{`histogram_quantile(0.99, sum by (topic, le) (rate(txonce_outbox_confirm_delay_seconds_bucket[$__rate_interval])))`, "{{topic}} p99"},
		}},
		{"Published", "ops", "Those without an error are confirmed by the broker.", 0, [][2]string{
			{`sum by (messaging_destination_name, error_type) (rate(messaging_client_sent_messages_total[$__rate_interval]))`, "{{messaging_destination_name}} {{error_type}}"},
		}},
		{"Duration of a publication", "s", "", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (messaging_destination_name, le) (rate(messaging_client_operation_duration_seconds_bucket[$__rate_interval])))`, "{{messaging_destination_name}} p99"},
		}},
		{
			"Leases", "ops", "After a lease was lost or stale, a batch may be published twice.", 0,
			[][2]string{{`sum by (relay, kind) (rate(txonce_relay_leases_total[$__rate_interval]))`, "{{relay}} {{kind}}"}},
		},
	}},
	{"HTTP requests and webhooks", []chart{
		{"Requests by decision", "ops", "replayed: the client got the response of the first request. conflict: the first one was still running.", 0, [][2]string{
			{`sum by (guard, decision) (rate(txonce_http_requests_total[$__rate_interval]))`, "{{guard}} {{decision}}"},
		}},
		{"Replays", "percentunit", "The share of requests that were completed before.", 0, [][2]string{
			{`sum by (guard) (rate(txonce_http_requests_total{decision="replayed"}[$__rate_interval])) / (sum by (guard) (rate(txonce_http_requests_total[$__rate_interval])) > 0)`, "{{guard}}"},
		}},
		{"Refusals by reason", "ops", "", 0, [][2]string{
			{`sum by (guard, reason) (rate(txonce_http_requests_total{reason!=""}[$__rate_interval])) > 0`, "{{guard}} {{reason}}"},
		}},
		{"Duration of requests", "s", "", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (guard, decision, le) (rate(txonce_http_duration_seconds_bucket[$__rate_interval])))`, "{{guard}} {{decision}} p99"},
		}},
		{"Wait for another request with the key", "s", "Of requests that waited. It ends at Config.Wait with 409.", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (guard, le) (rate(txonce_http_wait_seconds_bucket[$__rate_interval])))`, "{{guard}} p99"},
		}},
		{"Age of replayed keys", "s", "When it comes near Config.Window, clients retry for longer than keys are remembered.", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (guard, le) (rate(txonce_http_replay_age_seconds_bucket[$__rate_interval])))`, "{{guard}} p99"},
			{`histogram_quantile(0.99, sum by (source, le) (rate(txonce_webhook_replay_age_seconds_bucket[$__rate_interval])))`, "{{source}} p99"},
		}},
		{"COMMITs without an answer", "ops", "The client's repeat settles what happened.", 0, [][2]string{
			{`sum by (guard) (rate(txonce_http_commit_unknown_total[$__rate_interval]))`, "{{guard}}"},
		}},
		{"Events of webhooks", "ops", "deferred: nothing was committed, and the sender delivers it again.", 0, [][2]string{
			{`sum by (source, outcome) (rate(txonce_webhook_events_total[$__rate_interval]))`, "{{source}} {{outcome}}"},
			{`sum by (source) (rate(txonce_webhook_late_total[$__rate_interval]))`, "{{source}} answered before the handler returned"},
		}},
		{"Refused deliveries of webhooks", "ops", "bad-signature: from a stranger, or a secret was replaced.", 0, [][2]string{
			{`sum by (source, refusal) (rate(txonce_webhook_refused_total[$__rate_interval])) > 0`, "{{source}} {{refusal}}"},
		}},
		{"Answers to webhooks", "ops", "", 0, [][2]string{
			{`sum by (source, answer) (rate(txonce_webhook_deliveries_total[$__rate_interval]))`, "{{source}} {{answer}}"},
		}},
		{"Duration of webhook deliveries", "s", "", 0, [][2]string{
			{`histogram_quantile(0.99, sum by (source, answer, le) (rate(txonce_webhook_duration_seconds_bucket[$__rate_interval])))`, "{{source}} {{answer}} p99"},
		}},
	}},
	{"Database and brokers", []chart{
		{"Connections in use", "percentunit", "", 0, [][2]string{
			{`sum by (instance, db_client_connection_pool_name) (db_client_connection_count{db_client_connection_state="used"}) / sum by (instance, db_client_connection_pool_name) (db_client_connection_max)`, "{{instance}} {{db_client_connection_pool_name}}"},
		}},
		{
			"Window minus redelivery", "s", "Below 0 a message may come again after its key was forgotten.", 0,
			[][2]string{{`min by (consumer) (txonce_window_margin_seconds` + byConsumer + `)`, "{{consumer}}"}},
		},
		{"Deleted keys", "ops", "", 0, [][2]string{{`sum(rate(txonce_sweep_rows_total[$__rate_interval]))`, "rows"}}},
		{
			"Events of subscribers", "ops", "gap: the broker deleted messages before they were read.", 0,
			[][2]string{{`sum by (source, event) (rate(txonce_source_events_total[$__rate_interval]))`, "{{source}} {{event}}"}},
		},
		{
			"Databases that went back", "short", "The database had lost commits: messages were read again, or must be sent again.", 0, [][2]string{
				{`sum by (source) (increase(txonce_source_events_total{event="went_back"}[$__rate_interval])) > 0`, "{{source}} partitions"},
				{`sum by (source) (increase(txonce_source_events_total{event="read_again"}[$__rate_interval])) > 0`, "{{source}} messages read again"},
				{`sum by (consumer) (increase(txonce_database_losses_total` + byConsumer + `[$__rate_interval])) > 0`, "{{consumer}} lost what it had acknowledged"},
			},
		},
		{"Audits", "short", "", 0, [][2]string{
			{`max by (consumer) (txonce_audit_checked` + byConsumer + `)`, "{{consumer}} checked"},
			{`max by (consumer) (txonce_audit_lost` + byConsumer + `)`, "{{consumer}} lost"},
			{`max by (consumer) (txonce_audit_doubled` + byConsumer + `)`, "{{consumer}} doubled"},
			{`max by (consumer) (txonce_audit_orphaned` + byConsumer + `)`, "{{consumer}} orphaned"},
			{`max by (consumer) (txonce_audit_repeated` + byConsumer + `)`, "{{consumer}} repeated"},
		}},
	}},
}

// Positions on Grafana's grid.
const (
	gridWidth   = 24
	statHeight  = 4
	chartWidth  = 8
	chartHeight = 7
)

func dashboardJSON() string {
	source := &datasource{Type: "prometheus", UID: "${datasource}"}
	d := grafana{
		Title: "txonce", UID: "txonce", Description: "Consumers, outbox and database of txonce. Made by go generate in adapters/telemetry/monitoring.",
		SchemaVersion: 39, Editable: true, Refresh: "30s", Tags: []string{"txonce"}, Time: timeRange{"now-3h", "now"},
		Templating: templating{[]variable{
			{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus"},
			{
				Name: "consumer", Label: "Consumer", Type: "query",
				Query: "label_values(txonce_deliveries_total, consumer)", Datasource: source,
				IncludeAll: true, Multi: true, AllValue: ".*", Refresh: 2,
			},
		}},
	}
	y := 0
	add := func(p panel) {
		p.ID, p.FieldConfig.Overrides = len(d.Panels)+1, []struct{}{}
		d.Panels = append(d.Panels, p)
	}
	for _, r := range dashboardRows {
		add(panel{Title: r.title, Type: "row", GridPos: gridPos{1, gridWidth, 0, y}})
		y++
		x, height := 0, 0
		for _, c := range r.charts {
			p := panel{Title: c.title, Description: c.description, Datasource: source, Type: "timeseries"}
			p.FieldConfig.Defaults = fieldDefaults{Unit: c.unit, Min: new(int)}
			size := gridPos{H: chartHeight, W: chartWidth}
			if c.red != 0 {
				p.Type, size = "stat", gridPos{H: statHeight, W: gridWidth / len(r.charts)}
				p.FieldConfig.Defaults.Thresholds = &threshold{"absolute", []step{{"green", nil}, {"red", &c.red}}}
			}
			if c.title == "Window minus redelivery" {
				p.FieldConfig.Defaults.Min = nil // it may be negative
			}
			if x+size.W > gridWidth {
				x, y = 0, y+height
			}
			size.X, size.Y = x, y
			x, height = x+size.W, size.H
			for i, q := range c.queries {
				p.Targets = append(p.Targets, target{RefID: string(rune('A' + i)), Expr: q[0], LegendFormat: q[1]})
			}
			p.GridPos = size
			add(p)
		}
		y += height
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	if err := encoder.Encode(d); err != nil {
		panic(err)
	}
	return b.String()
}
