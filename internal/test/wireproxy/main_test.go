package wireproxy_test

import (
	"testing"

	"github.com/txonce/txonce/internal/test/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
