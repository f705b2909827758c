package oncecheck

import (
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// A Flow says what of a value differs between the deliveries of a message.
type Flow struct {
	What   string // "time.Now"; empty: nothing
	Params uint64 // the parameters that the value has been made of
	pos    token.Pos
}

func (a Flow) equal(b Flow) bool { return a.What == b.What && a.Params == b.Params }

func (a Flow) join(b Flow) Flow {
	if a.What == "" {
		a.What, a.pos = b.What, b.pos
	}
	a.Params |= b.Params
	return a
}

// fieldsThatDiffer are fields of messages that are no business key: a second publication of an event has others, and
// some differ at each delivery.
var fieldsThatDiffer = map[string][]string{
	pathTxonce + "/consumer.Message":                              {"Position", "Attempt"},
	"github.com/IBM/sarama.ConsumerMessage":                       {"Offset"},
	"github.com/segmentio/kafka-go.Message":                       {"Offset"},
	"github.com/twmb/franz-go/pkg/kgo.Record":                     {"Offset"},
	"github.com/confluentinc/confluent-kafka-go/v2/kafka.Message": {"TopicPartition"},
	"github.com/aws/aws-sdk-go-v2/service/sqs/types.Message":      {"MessageId", "ReceiptHandle"},
	"github.com/aws/aws-sdk-go/service/sqs.Message":               {"MessageId", "ReceiptHandle"},
	"github.com/aws/aws-lambda-go/events.SQSMessage":              {"MessageId", "ReceiptHandle"},
	"github.com/rabbitmq/amqp091-go.Delivery":                     {"DeliveryTag"},
}

// makers are packages whose functions return another value each time, apart from those that isMaker names.
var makers = []string{
	"github.com/google/uuid", "github.com/gofrs/uuid", "github.com/gofrs/uuid/v5", "github.com/satori/go.uuid",
	"github.com/oklog/ulid", "github.com/oklog/ulid/v2", "github.com/rs/xid", "github.com/segmentio/ksuid",
	"github.com/lithammer/shortuuid/v3", "github.com/lithammer/shortuuid/v4", "github.com/matoous/go-nanoid/v2",
	"math/rand", "math/rand/v2", "crypto/rand",
}

func isMaker(pkg, name string) bool {
	if pkg == "time" {
		return name == "Now" || name == "Since" || name == "Until"
	}
	if !slices.Contains(makers, pkg) {
		return false
	}
	if name == "MustNew" { // of ulid
		return true
	}
	return !slices.ContainsFunc([]string{"Parse", "From", "NewSHA1", "NewMD5", "NewV3", "NewV5", "NewHash", "Must"},
		func(stable string) bool { return strings.HasPrefix(name, stable) })
}

// transparent packages have functions whose result is made of nothing but their arguments.
var transparent = []string{
	"fmt", "strconv", "strings", "bytes", "path", "time", "encoding/hex", "encoding/base64", "encoding/base32",
	"encoding/binary", "crypto/sha1", "crypto/sha256", "crypto/sha512", "crypto/md5", "hash/fnv", "hash/crc32", "cmp",
	"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go/aws",
}

// A key follows a key back to what it is made of.
type key struct {
	*flow
	found Flow
	seen  map[ssa.Value]bool
}

// unstable returns what of v differs between deliveries.
func (f *flow) unstable(v ssa.Value) Flow {
	k := key{flow: f, seen: map[ssa.Value]bool{}}
	k.value(v)
	return k.found
}

func (k *key) add(what string, pos token.Pos) { k.found = k.found.join(Flow{What: what, pos: pos}) }

func (k *key) value(v ssa.Value) {
	if v == nil || k.seen[v] || len(k.seen) > mostVisits {
		return
	}
	k.seen[v] = true
	switch v := v.(type) {
	case *ssa.Parameter:
		if i := slices.Index(v.Parent().Params, v); i < 64 && v.Parent() == k.fn {
			k.found.Params |= 1 << i
		}
	case *ssa.FreeVar:
		for _, b := range bound(v) {
			k.value(b)
		}
	case *ssa.Alloc, *ssa.MakeSlice:
		k.stores(v)
	case *ssa.FieldAddr:
		k.field(v, v.X, v.Field)
	case *ssa.Field:
		k.field(v, v.X, v.Field)
	case *ssa.Phi:
		for _, edge := range v.Edges {
			k.value(edge)
		}
	case *ssa.BinOp:
		if v.Op == token.ADD || isNumber(v.Type()) {
			k.value(v.X)
			k.value(v.Y)
		}
	case *ssa.Call:
		k.call(v, 0)
	case *ssa.Extract:
		if call, ok := v.Tuple.(*ssa.Call); ok {
			k.call(call, v.Index)
		}
	case *ssa.IndexAddr:
		k.value(v.X)
	case *ssa.Index:
		k.value(v.X)
	case *ssa.UnOp, *ssa.Slice, *ssa.Convert, *ssa.ChangeType, *ssa.ChangeInterface, *ssa.MakeInterface, *ssa.TypeAssert:
		for _, op := range v.(ssa.Instruction).Operands(nil) {
			k.value(*op)
		}
	}
}

func isNumber(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

func (k *key) field(v, x ssa.Value, index int) {
	t := x.Type()
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	if name := st.Field(index).Name(); slices.Contains(fieldsThatDiffer[typeName(t)], name) {
		k.add(shortType(t)+"."+name, v.Pos())
		return
	}
	if alloc, ok := x.(*ssa.Alloc); ok { // only what was stored in this field
		for _, ref := range *alloc.Referrers() {
			if other, ok := ref.(*ssa.FieldAddr); ok && other.Field == index {
				k.stores(other)
			}
			if store, ok := ref.(*ssa.Store); ok && store.Addr == alloc {
				k.value(store.Val)
			}
		}
		return
	}
	if _, ok := x.(*ssa.Parameter); !ok {
		k.value(x)
	}
}

func shortType(t types.Type) string {
	if named, ok := types.Unalias(t).(*types.Named); ok {
		return named.Obj().Name()
	}
	return t.String()
}

// stores follows what is stored in a variable, in its elements, or written to a strings.Builder.
func (k *key) stores(addr ssa.Value) {
	for _, ref := range *addr.Referrers() {
		switch ref := ref.(type) {
		case *ssa.Store:
			if ref.Addr == addr {
				k.value(ref.Val)
			}
		case *ssa.IndexAddr:
			k.stores(ref)
		case *ssa.Call:
			if name := typeName(addr.Type()); name == "strings.Builder" || name == "bytes.Buffer" {
				for _, arg := range ref.Call.Args {
					k.value(arg)
				}
			}
		}
	}
}

func (k *key) call(call *ssa.Call, result int) {
	common := &call.Call
	method, recv, _ := methodOf(common)
	args := arguments(common)
	pkg := receiverPackage(common)
	if recv == nil {
		pkg, _, _ = cutLast(calleeName(common))
	}
	switch {
	case pkg == "hash" && strings.HasPrefix(method, "Sum"):
		k.written(args[0])
	case isMaker(pkg, method) && !(recv != nil && (method == "String" || !strings.Contains(pkg, "rand"))):
		k.add(lastOf(pkg)+"."+method, common.Pos())
	case isBuiltin(common), slices.Contains(transparent, pkg), slices.Contains(makers, pkg):
		for _, arg := range args {
			k.value(arg)
		}
	default:
		s := k.summaryOf(common)
		if s == nil {
			if method == "String" && recv != nil {
				k.value(args[0])
			}
			return
		}
		if result >= len(s.Keys) {
			return
		}
		if what := s.Keys[result].What; what != "" {
			k.add(what+" in "+k.text(call), common.Pos())
		}
		for i, arg := range args {
			if i < 64 && s.Keys[result].Params&(1<<i) != 0 {
				k.value(arg)
			}
		}
	}
}

// written follows what is written to a hash.
func (k *key) written(hash ssa.Value) {
	if hash.Referrers() == nil {
		return
	}
	for _, ref := range *hash.Referrers() {
		switch ref := ref.(type) {
		case ssa.CallInstruction:
			for _, arg := range arguments(ref.Common()) {
				if arg != hash {
					k.value(arg)
				}
			}
		case *ssa.ChangeInterface:
			k.written(ref)
		}
	}
}

func lastOf(path string) string {
	parts := strings.Split(path, "/")
	last := parts[len(parts)-1]
	if len(parts) > 1 && len(last) > 1 && last[0] == 'v' && last[1] >= '0' && last[1] <= '9' {
		last = parts[len(parts)-2]
	}
	return last
}
