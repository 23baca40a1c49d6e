package checkpointbackup

import "time"

// LookEvery has the client look more often at what is served than a test could wait for.
func (c *Client) LookEvery(interval time.Duration) { c.every = interval }
