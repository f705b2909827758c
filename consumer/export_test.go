package consumer

// KeysInUse is how many keys the consumer's lock remembers.
func (c *Consumer[TTx]) KeysInUse() int {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	return len(c.keys.keys)
}
