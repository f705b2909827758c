package interleave

import (
	"slices"

	"github.com/jackc/pgx/v5/pgtype"
)

// copyTypes copies the types of a connection, because a pgtype.Map is not safe for concurrent use. The copy lacks what
// the user has registered with RegisterDefaultPgType, which matters for types only that the connection does not know.
func copyTypes(types *pgtype.Map) *pgtype.Map {
	own := types.Copy()
	own.TryWrapEncodePlanFuncs, own.TryWrapScanPlanFuncs = types.TryWrapEncodePlanFuncs, types.TryWrapScanPlanFuncs
	return own
}

// unshareType gives own, a copy of shared, a type of its own for oid. Map.Copy copies no codec, and that of an enum has
// a cache.
func unshareType(own, shared *pgtype.Map, oid uint32) {
	t, found := own.TypeForOID(oid)
	if !found {
		return
	}
	if before, _ := shared.TypeForOID(oid); before != t {
		return // done
	}
	if unshared := unshare(t); unshared != t {
		own.RegisterType(unshared)
	}
}

// unshare returns t, or a copy of t if its codec has a cache. The codecs of pgx other than the following, and those
// that it has for built-in types, have none.
func unshare(t *pgtype.Type) *pgtype.Type {
	own := *t
	switch codec := t.Codec.(type) {
	case *pgtype.EnumCodec:
		own.Codec = &pgtype.EnumCodec{}
	case *pgtype.ArrayCodec:
		c := *codec
		c.ElementType = unshare(c.ElementType)
		own.Codec = &c
	case *pgtype.RangeCodec:
		c := *codec
		c.ElementType = unshare(c.ElementType)
		own.Codec = &c
	case *pgtype.MultirangeCodec:
		c := *codec
		c.ElementType = unshare(c.ElementType)
		own.Codec = &c
	case *pgtype.CompositeCodec:
		c := *codec
		c.Fields = slices.Clone(c.Fields)
		for i := range c.Fields {
			c.Fields[i].Type = unshare(c.Fields[i].Type)
		}
		own.Codec = &c
	default:
		return t
	}
	return &own
}
