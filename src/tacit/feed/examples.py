"""Maps of what others write, to begin with."""

from __future__ import annotations

EXAMPLES = {
    "segment": """\
# Segment's and RudderStack's events, one JSON object a line.
# https://www.twilio.com/docs/segment/connections/spec/track
# The page sends the decision's id along: analytics.track("Product Clicked", {decision_id: …}).
placement = { value = "home" }
decision_id = "properties.decision_id"
id = "messageId"
time = "timestamp"
event = "event"

[where]
type = "track"

[reward]
"Product Clicked" = 1
# With a metric of this name in the placement's configuration:
# "Order Completed" = { metric = "revenue", field = "properties.total" }
""",
    "posthog": """\
# PostHog's batch exports, JSON lines or Parquet, in which properties are JSON in a text.
# https://posthog.com/docs/data-pipelines/batch-exports/s3
# The page sends the decision's id along: posthog.capture("clicked", {decision_id: …}).
placement = { value = "home" }
decision_id = "properties.decision_id"
id = "uuid"
time = "timestamp"
event = "event"

[reward]
"clicked" = 1
""",
    "posthog-webhook": """\
# PostHog's webhook destination with its own body: {"event": "{event}", "person": "{person}"}.
# https://posthog.com/docs/data-pipelines/destinations/webhook
# The page sends the decision's id along: posthog.capture("clicked", {decision_id: …}).
placement = { value = "home" }
decision_id = "event.properties.decision_id"
id = "event.uuid"
time = "event.timestamp"
event = "event.event"

[reward]
"clicked" = 1
""",
    "cloudevents": """\
# CloudEvents 1.0, as JSON: https://github.com/cloudevents/spec
# An event names the decision in its data.
placement = { value = "home" }
decision_id = "data.decision_id"
id = "id"
time = "time"
event = "type"

[reward]
"com.example.clicked" = 1
""",
    "ubi": """\
# Events of User Behavior Insights (UBI 1.3), for a placement that lists: its decision's id is the query's.
# https://github.com/o19s/ubi/blob/main/schema/1.3.0/event.schema.json
placement = { value = "results" }
decision_id = "query_id"
items = "event_attributes.object.object_id"
time = "timestamp"

[where]
action_name = "click"
""",
    "ga4": """\
# Google Analytics 4 as BigQuery exports it, JSON lines or Parquet.
# https://support.google.com/analytics/answer/7029846
# The page sends the decision's id along: gtag("event", "select_content", {decision_id: …}).
placement = { value = "home" }
decision_id = "event_params.decision_id.value.string_value"
time = "event_timestamp"
time_unit = "us"
event = "event_name"

[reward]
"select_content" = 1
""",
}
"""A map for each, as the file ``feed.toml``."""
