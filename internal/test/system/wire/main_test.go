package wire

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/txonce/txonce/internal/test/leaktest"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(new(mysql.NopLogger)) // it would print each connection that is cut
	leaktest.Main(m, goleak.IgnoreAnyFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}
