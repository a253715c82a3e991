module meshtrial.test/pause

go 1.26.0
