package fromsqs_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx", which testdb takes

	"github.com/txonce/txonce/examples/internal/command"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Each order is in the queue twice, as after a crash between COMMIT and DeleteMessage.
func TestOrdersThatComeTwice(t *testing.T) {
	for folder, want := range map[string]string{"./before": "a a b b", "./after": "a b"} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			client := testsqs.Server(t)
			queueURL := testsqs.Queue(t, client, nil)
			for _, id := range []string{"a", "b", "b", "a"} {
				body := `{"order_id": "` + id + `", "amount": 7}`
				if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{
					QueueUrl: &queueURL, MessageBody: &body,
				}); err != nil {
					t.Fatal(err)
				}
			}
			dsn := testdb.Tables(t, testdb.Postgres(t), `CREATE TABLE charges (order_id text, amount bigint)`)
			env := []string{"DATABASE_URL=" + dsn, "SQS=" + testdb.Server(t, "TXONCE_SQS", "ElasticMQ"), "QUEUE_URL=" + queueURL}
			command.RunUntil(t, folder, env, func(ctx context.Context) (bool, error) {
				got, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
					QueueUrl: &queueURL, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
				})
				return err == nil && got.Attributes["ApproximateNumberOfMessages"] == "0" &&
					got.Attributes["ApproximateNumberOfMessagesNotVisible"] == "0", err
			})
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var charged string
			if err := db.QueryRowContext(t.Context(),
				`SELECT string_agg(order_id, ' ' ORDER BY order_id) FROM charges`).Scan(&charged); err != nil || charged != want {
				t.Errorf("charged %q, want %q, %v", charged, want, err)
			}
		})
	}
}

// docs/getting-started.md says how many lines change.
func TestFewLinesChange(t *testing.T) {
	read := func(path string) []string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(string(text), "\n)\n") // below the imports
		return strings.Split(body, "\n")
	}
	before := map[string]int{}
	for _, line := range read("before/main.go") {
		before[line]++
	}
	var changed []string
	for _, line := range read("after/main.go") {
		if before[line]--; before[line] < 0 {
			changed = append(changed, line)
		}
	}
	if len(changed) > 10 || len(changed) == 0 {
		t.Errorf("%d lines are new:\n%s", len(changed), strings.Join(changed, "\n"))
	}
}
