package dsn

import (
	"errors"
	"strings"
)

// MySQL is a DSN of go-sql-driver/mysql: user:password@network(address)/database?parameters.
type MySQL struct {
	User             string // with the password and the @ that ends it
	Network, Address string
	Database         string
	Parameters       string // joined by &
}

// ParseMySQL reads a DSN that names its network and address.
func ParseMySQL(dsn string) (MySQL, error) {
	slash := strings.LastIndex(dsn, "/") // a socket's path and a password may contain one too
	if slash < 0 {
		return MySQL{}, errors.New("the DSN has no /, which its database follows")
	}
	var m MySQL
	m.Database, m.Parameters, _ = strings.Cut(dsn[slash+1:], "?")
	server := dsn[:slash]
	if at := strings.LastIndex(server, "@"); at >= 0 {
		m.User, server = server[:at+1], server[at+1:]
	}
	var found, closed bool
	m.Network, m.Address, found = strings.Cut(server, "(")
	if m.Address, closed = strings.CutSuffix(m.Address, ")"); !found || !closed {
		return MySQL{}, errors.New("the DSN names no network(address) before its /")
	}
	return m, nil
}

// With returns m with further parameters, such as parseTime=true.
func (m MySQL) With(parameters string) MySQL {
	if m.Parameters != "" {
		parameters = m.Parameters + "&" + parameters
	}
	m.Parameters = parameters
	return m
}

func (m MySQL) String() string {
	dsn := m.User + m.Network + "(" + m.Address + ")/" + m.Database
	if m.Parameters != "" {
		dsn += "?" + m.Parameters
	}
	return dsn
}
