package webhook

// Held returns how many bytes of bodies the Receiver has in memory.
func (r *Receiver) Held() int64 {
	r.bodies.mu.Lock()
	defer r.bodies.mu.Unlock()
	return r.bodies.used
}
