package pgrelay

import "github.com/txonce/txonce/dedup/driver"

func decodeHeaders(encoded *string) (map[string]string, error) {
	if encoded == nil {
		return nil, nil
	}
	return driver.DecodeHeaders([]byte(*encoded))
}
