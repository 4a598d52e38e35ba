// A server visits four stations in turn; what happens next, by the rates of arrivals, of moves and of services.
// Is somebody served at the third station before anybody is at the first?
dtmc
const double ARRIVES = 0.25;
const double MOVES = 5;
const double SERVES = 1;
formula waits = at=1 ? b1 : at=2 ? b2 : at=3 ? b3 : b4;
formula empty = ARRIVES*(4-b1-b2-b3-b4);
module server
  at : [1..4] init 2;
  serving : [0..1] init 0;
  b1 : [0..1] init 0;
  b2 : [0..1] init 0;
  b3 : [0..1] init 0;
  b4 : [0..1] init 0;
  [] serving=0 -> MOVES/(MOVES+empty) : (serving'=waits) & (at'=waits=1 ? at : at=4 ? 1 : at+1)
    + ARRIVES*(1-b1)/(MOVES+empty) : (b1'=1) + ARRIVES*(1-b2)/(MOVES+empty) : (b2'=1)
    + ARRIVES*(1-b3)/(MOVES+empty) : (b3'=1) + ARRIVES*(1-b4)/(MOVES+empty) : (b4'=1);
  [] serving=1 -> SERVES/(SERVES+empty) : (serving'=0) & (at'=at=4 ? 1 : at+1)
      & (b1'=at=1 ? 0 : b1) & (b2'=at=2 ? 0 : b2) & (b3'=at=3 ? 0 : b3) & (b4'=at=4 ? 0 : b4)
    + ARRIVES*(1-b1)/(SERVES+empty) : (b1'=1) + ARRIVES*(1-b2)/(SERVES+empty) : (b2'=1)
    + ARRIVES*(1-b3)/(SERVES+empty) : (b3'=1) + ARRIVES*(1-b4)/(SERVES+empty) : (b4'=1);
endmodule
label "goal" = at=3 & serving=1;
label "avoid" = at=1 & serving=1;
